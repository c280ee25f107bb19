"""The tables between the stages of a check, and what a stage is."""

from __future__ import annotations

from typing import NamedTuple

from tidelog_pipeline.columns import Columns, Run

# What a part of the check came to, in a row of its own.
_VERDICT = {"report": "binary", "error_line": "bigint", "error": "string", "peak_kb": "bigint"}

RANGES = Columns(uri="string", start="bigint", end="bigint", first_line="bigint")
LINE_COUNTS = Columns(uri="string", start="bigint", lines="bigint")

# `kind`: invoked or ended, of a send; reader; mark; nemesis; error. `raw`: the line, of all but
# sends. Of sends the columns are their fields; of polls `offsets`, `values` and `leader_epochs`
# are what they gave.
OPERATIONS = Columns(
    line="bigint",
    kind="string",
    time_ms="bigint",
    client="string",
    topic="string",
    partition="bigint",
    value="bigint",
    outcome="string",
    offset="bigint",
    leader_epoch="bigint",
    broker_id="bigint",
    final="boolean",
    offsets="array<bigint>",
    values="array<bigint>",
    leader_epochs="array<bigint>",
    raw="binary",
    error="string",
)

# Halves of sends, and records that polls gave (kind polled, `index` within their poll).
VALUES = Columns(
    value="bigint",
    line="bigint",
    index="bigint",
    kind="string",
    time_ms="bigint",
    client="string",
    topic="string",
    partition="bigint",
    outcome="string",
    offset="bigint",
    leader_epoch="bigint",
    broker_id="bigint",
    final="boolean",
)

# In the order of `Send`.
_SEND = {
    "value": "bigint",
    "client": "string",
    "topic": "string",
    "partition": "bigint",
    "outcome": "string",
    "offset": "bigint",
    "leader_epoch": "bigint",
    "broker_id": "bigint",
    "invoked_line": "bigint",
    "invoked_ms": "bigint",
    "ended_line": "bigint",
    "ended_ms": "bigint",
}
SENDS = Columns(**_SEND, is_polled="boolean", **_VERDICT)
SENT = Columns(**_SEND)

READERS = Columns(topic="string", partition="bigint", line="bigint", raw="binary")
# `kind`: jump (`first` is its first offset) or facts; `blob` is the one or the other.
READ = Columns(
    topic="string", partition="bigint", kind="string", first="bigint", blob="binary", **_VERDICT
)

# A partition's log. `rank`, within an offset: facts, jumps, polled records, sends; of sends
# `flag` says whether they were polled, of records whether by final reads.
LOG = Columns(
    topic="string",
    partition="bigint",
    offset="bigint",
    rank="bigint",
    line="bigint",
    index="bigint",
    value="bigint",
    leader_epoch="bigint",
    time_ms="bigint",
    client="string",
    flag="boolean",
    broker_id="bigint",
    invoked_line="bigint",
    invoked_ms="bigint",
    blob="binary",
)
VERDICTS = Columns(**_VERDICT)

SUCCESS_TIMES = Columns(topic="string", partition="bigint", time_ms="bigint")
# Of the window of one nemesis event; of all time, where there is none.
GAPS = Columns(
    window="bigint", topic="string", partition="bigint", begin_ms="bigint", end_ms="bigint"
)


class Stage(NamedTuple):
    """`run` takes the rows of groups of `group_by`, each whole, and all in the order of
    `order_by`, which begins with these; and holds no more than it says."""

    takes: Columns
    group_by: tuple[str, ...]
    order_by: tuple[str, ...]
    gives: Columns
    run: Run
