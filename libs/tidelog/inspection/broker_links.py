"""How brokers are linked to the rest of the cluster, as the active controller finds it."""

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
    """`broken_ms` -1: it stands."""

    broker_id: int
    broker_epoch: int
    broken_ms: int = -1
    dial: str = ""

    @property
    def stands(self) -> bool:
        return self.broken_ms < 0
