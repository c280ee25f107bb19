"""Names the changes that this broker decides: `b<broker id>-<broker epoch>-<n>`, its end
`…-stopping`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from tidelog.state_changes.event import Cause, Change, broker_stopping
from tidelog_runtime.clock import Clock


class ChangeIds:
    """One for each life of a broker: `n` counts all that it decides. `broker_epoch`: as it is
    known now; before it has registered, a revision that is higher than any former life's."""

    def __init__(self, broker_id: int, broker_epoch: Callable[[], int], clock: Clock) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._numbers = count(1)

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch()

    def next(self, cause: Cause) -> Change:
        change_id = f"b{self._broker_id}-{self._broker_epoch()}-{next(self._numbers)}"
        return Change(change_id, cause, self._clock.wall_ms())

    def stopping(self) -> Change:
        return broker_stopping(self._broker_id, self._broker_epoch(), self._clock.wall_ms())
