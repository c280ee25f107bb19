"""Ids of the changes that this broker decides: `b<broker id>-<broker epoch>-<n>`.

Its stop has an id that ends with `-stopping`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from tidelog.state_changes.event import Cause, Change, broker_stopping
from tidelog_runtime.clock import Clock


class ChangeIds:
    """Numbers the changes of one incarnation.

    `broker_epoch` returns the epoch known now; before the broker has registered, that is a revision
    above those of previous incarnations.
    """

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
