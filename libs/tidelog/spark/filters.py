"""Narrows a batch by Spark's filters.

Filters of partition, topic and offset are applied completely. A filter of time only moves the
start: records need not be in the order of their timestamps, so Spark filters them again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidelog.model import TopicPartition

_Test = Callable[[Any, Any], bool]
_TESTS: dict[type[Filter], _Test] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, among: value in among,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}
# Columns that are never null. A timestamp is null if Spark cannot represent it.
_NEVER_NULL = frozenset({"topic", "partition", "offset", "leader_epoch"})


@dataclass(slots=True)
class Narrowed:
    """The part of a batch that is left to read.

    Offsets from `first_offset` and before `end_offset`, of partitions that pass the filters, from
    the first record at or after `time_ms`.
    """

    first_offset: int = 0
    end_offset: int | None = None
    time_ms: int | None = None
    _of_topic: list[Callable[[str], bool]] = field(default_factory=list)
    _of_partition: list[Callable[[int], bool]] = field(default_factory=list)

    def reads(self, partition: TopicPartition) -> bool:
        return all(test(partition.topic) for test in self._of_topic) and all(
            test(partition.partition) for test in self._of_partition
        )

    def apply(self, filters: Iterable[Filter]) -> list[Filter]:
        """Applies filters, and returns those that Spark still has to apply."""
        return [one for one in filters if not self._apply_one(one)]

    def _apply_one(self, one: Filter) -> bool:
        plain, negated = (one.child, True) if isinstance(one, Not) else (one, False)
        path: tuple[str, ...] = getattr(plain, "attribute", ())
        if len(path) != 1:
            return False
        column = path[0]
        if isinstance(plain, IsNotNull):
            return not negated and column in _NEVER_NULL
        value = getattr(plain, "value", None)
        if value is None or type(plain) not in _TESTS:
            return False
        if column in ("topic", "partition"):
            return self._add_test(column, _TESTS[type(plain)], value, negated)
        if column == "offset" and not negated and type(value) is int:
            return self._apply_offset(plain, value)
        if column == "timestamp" and not negated and isinstance(value, datetime):
            self._apply_time(plain, value)
        return False

    def _add_test(self, column: str, test: _Test, value: Any, negated: bool) -> bool:
        if isinstance(value, tuple | list) and None in value:
            return False
        tests: list[Callable[[Any], bool]]
        tests = self._of_topic if column == "topic" else self._of_partition
        tests.append(lambda found: test(found, value) is not negated)
        return True

    def _apply_offset(self, plain: Filter, value: int) -> bool:
        first, end = 0, None
        if isinstance(plain, EqualTo | EqualNullSafe):
            first, end = value, value + 1
        elif isinstance(plain, GreaterThan | GreaterThanOrEqual):
            first = value + isinstance(plain, GreaterThan)
        elif isinstance(plain, LessThan | LessThanOrEqual):
            end = value + isinstance(plain, LessThanOrEqual)
        else:
            return False
        self.first_offset = max(self.first_offset, first)
        if end is not None:
            self.end_offset = end if self.end_offset is None else min(self.end_offset, end)
        return True

    def _apply_time(self, plain: Filter, value: datetime) -> None:
        if value.tzinfo is None or not isinstance(
            plain, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual
        ):
            return
        # Rounded down, so that all records of the same millisecond are read.
        time_ms = max(int(value.timestamp() * 1000), 0)
        self.time_ms = time_ms if self.time_ms is None else max(self.time_ms, time_ms)
