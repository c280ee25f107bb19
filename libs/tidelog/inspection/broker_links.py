"""Links between brokers and the rest of the cluster, as the active controller reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseEnds:
    broker_id: int
    count: int
    window_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class BrokerConnection:
    """The active controller's connection to a broker. `broken_ms` is -1 while it is connected."""

    broker_id: int
    broker_epoch: int
    broken_ms: int = -1
    dial: str = ""

    @property
    def stands(self) -> bool:
        return self.broken_ms < 0
