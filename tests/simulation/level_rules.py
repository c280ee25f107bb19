"""Rules of the cluster's feature level, checked with every write of the metadata store.

They are derived from rules `level-never-falls` and `registered-process-supports-level` alone, and
call none of production's own checks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from simulation.violation import Violation
from tidelog_runtime.metadata.keys import (
    BrokerKey,
    ClusterKey,
    ControllerKey,
    ControllerProcessKey,
    Keys,
)
from tidelog_runtime.metadata.store import Changed, KeyValue

ROSE = "feature level raised"


class LevelRules:
    """`seen`: what happened, for `Coverage`."""

    def __init__(self, keys: Keys, seen: Counter[str]) -> None:
        self._keys = keys
        self._seen = seen
        self._level = 0  # 0: there is no cluster yet
        # The levels that each registered process supports, by its role and id.
        self._supported: dict[tuple[str, int], range] = {}
        # The same of controllers whose registration has ended.
        self._last: dict[int, range] = {}

    def absorb(self, changes: Sequence[Changed]) -> None:
        """Checks changes in the order of their revisions. Raises `Violation`."""
        for _, together in groupby(changes, key=lambda change: change.revision):
            self._absorb(together)

    def _absorb(self, together: Iterable[Changed]) -> None:
        for key, value, _ in together:
            match self._keys.parse(key):
                case ClusterKey() if value is not None:
                    self._level_written(json.loads(value.value)["format_version"])
                case BrokerKey(broker_id):
                    self._registered(("broker", broker_id), value)
                case ControllerProcessKey(controller_id):
                    self._registered(("controller", controller_id), value)
                case ControllerKey() if value is not None:
                    self._elected(json.loads(value.value)["controller_id"])
                case _:
                    pass
        for who, levels in self._supported.items():
            if self._level and self._level not in levels:
                self._fail(who, levels)

    def _level_written(self, level: int) -> None:
        if level < self._level:
            raise Violation("level_fell", "it only rises", before=self._level, now=level)
        if self._level and level > self._level:
            self._seen[ROSE] += 1
        self._level = level

    def _registered(self, who: tuple[str, int], value: KeyValue | None) -> None:
        former = self._supported.pop(who, None)
        if value is not None:
            oldest, newest = json.loads(value.value).get("levels", (1, 1))
            self._supported[who] = range(oldest, newest + 1)
        elif former is not None and who[0] == "controller":
            self._last[who[1]] = former

    def _elected(self, controller_id: int) -> None:
        """Checks an active controller also while it is not registered."""
        who = ("controller", controller_id)
        levels = self._supported.get(who, self._last.get(controller_id))
        if levels is not None and self._level not in levels:
            self._fail(who, levels)

    def _fail(self, who: tuple[str, int], levels: range) -> None:
        raise Violation(
            "process_outside_level",
            "it must neither register nor be elected",
            process=f"{who[0]}-{who[1]}",
            supports=f"{levels.start} to {levels.stop - 1}",
            level=self._level,
        )
