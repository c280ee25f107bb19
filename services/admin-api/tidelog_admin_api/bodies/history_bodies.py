"""Bodies of the history: figures over time."""

from __future__ import annotations

from pydantic import Field

from tidelog_admin_api.bodies.base import AnswerBody, example


class HistorySeries(AnswerBody):
    name: str = Field(
        description="of the cluster: records_per_second and bytes_per_second (written by clients; "
        "without internal topics), under_replicated and without_leader (partitions), "
        "max_lag_records. Of a topic: records_per_second, bytes_per_second, approximate_records "
        "(offsets of the leaders' logs), leader_bytes, total_bytes (all replicas), "
        "max_lag_records. Of a partition: lag_records of each follower. Of a broker: "
        "bytes_per_second (appended to its logs, copies included), log_bytes, disk_free_bytes, "
        "leaders, replicas"
    )
    broker_id: int | None = Field(description="the broker; null: the series is of no broker")
    values: list[int | float | None] = Field(
        description="a value for each of `times_ms`. null: not known, because a service did not "
        "answer, a leader changed or a log became shorter; it is a gap, not 0"
    )


class History(AnswerBody):
    """Figures over time.

    Each gateway takes samples of its own while it runs, and keeps those of one hour at most. Those
    of the last five minutes are as they were taken. Older ones are merged into one every ten
    seconds: rates are means, sizes the last value, and counts and lags the highest one.
    """

    model_config = example(
        now_ms=1795320011400,
        began_ms=1795320002000,
        interval_ms=2000,
        times_ms=[1795320006000, 1795320008000, 1795320010000],
        series=[
            {"name": "records_per_second", "broker_id": None, "values": [None, 118.5, 120]},
            {"name": "under_replicated", "broker_id": None, "values": [0, 2, 0]},
        ],
    )

    now_ms: int = Field(description="time of the answer, in milliseconds since 1970")
    began_ms: int | None = Field(
        description="time of the oldest sample that is kept; null: there is none yet"
    )
    interval_ms: int = Field(
        description="time between samples while clients read them: 2 s, and more with more than "
        "2,000 replicas. Without readers it is at least 10 s"
    )
    times_ms: list[int] = Field(
        description="ascending, in milliseconds since 1970. A rate is a mean since the time before"
    )
    series: list[HistorySeries]
