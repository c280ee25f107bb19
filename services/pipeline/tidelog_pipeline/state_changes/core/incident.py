"""The contents of an incident page, of bounded size. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.state_changes.event import Kind
from tidelog_pipeline.state_changes.core.table_rows import Lines

# The time of an incident is divided into so many buckets for counts.
BUCKETS = 120

MARKS = (
    Kind.BROKER_FENCED,
    Kind.BROKER_LEFT,
    Kind.BROKER_JOINED,
    Kind.BROKER_STOPPING,
    Kind.BROKER_STALLED,
    Kind.CONTROLLER_ELECTED,
    Kind.CONTROLLER_STEPPED_DOWN,
    Kind.STORE_LOST,
    Kind.STORE_BACK,
)
# Series of the chart of changes over time.
FAMILIES: Mapping[str, tuple[Kind, ...]] = {
    "elections": (Kind.ELECTION, Kind.UNCLEAN_ELECTION, Kind.LEADER_LOST),
    "ISR shrinks": (Kind.ISR_SHRINK, Kind.RESIGNATION),
    "ISR expands": (Kind.ISR_EXPAND,),
}

Row = Mapping[str, Any]


class Window(NamedTuple):
    """A time range, in milliseconds since 1970."""

    begin_ms: int
    end_ms: int

    @property
    def bucket_ms(self) -> int:
        return max(1, -(-(self.end_ms - self.begin_ms) // BUCKETS))


class LimitedRows(NamedTuple):
    """The first rows of a list, and its length."""

    rows: Sequence[Row]
    total: int


class Incident(NamedTuple):
    """The contents of a page.

    Rows have the names of their tables' columns; times are milliseconds since 1970.

    - `intervals`: of the first partitions in `availability`.
    - `changes`: for each family, the number of changes that began in each bucket.
    - `worst_stages`: the stages of the slowest failover.
    """

    window: Window
    lines: Lines
    intervals: Sequence[Row]
    availability: LimitedRows
    marks: LimitedRows
    changes: Mapping[str, Sequence[int]]
    durations: LimitedRows
    elections: LimitedRows
    churn: LimitedRows
    unfinished: LimitedRows
    failovers: LimitedRows
    worst_stages: Sequence[Row]
