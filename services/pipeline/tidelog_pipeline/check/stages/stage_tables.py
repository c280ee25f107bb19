"""The tables between the stages of a check, and the type of a stage."""

from __future__ import annotations

from typing import NamedTuple

from tidelog_pipeline.columns import Columns, Run

# The verdict of a part of the check, in a row of its own.
_VERDICT = {"report": "binary", "error_line": "bigint", "error": "string", "peak_kb": "bigint"}

RANGES = Columns(uri="string", start="bigint", end="bigint", first_line="bigint")
LINE_COUNTS = Columns(uri="string", start="bigint", lines="bigint")

# `kind`: invoked or ended (of a send), reader, mark, nemesis or error. `raw`: the line; not for
# sends. Sends have their fields in columns; polls have their results in `offsets`, `values` and
# `leader_epochs`.
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

# Invocations and ends of sends, and polled records (kind polled, `index` within the poll).
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

# In the order of the fields of `Send`.
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
# `kind`: jump (`first` is its first offset) or facts; `blob`: the jump or the facts.
READ = Columns(
    topic="string", partition="bigint", kind="string", first="bigint", blob="binary", **_VERDICT
)

# A partition's log. `rank` orders the rows of an offset: facts, jumps, polled records, sends.
# `flag`: of sends, whether they were polled; of records, whether a final read returned them.
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
# Of the window of one nemesis event, or of the entire time.
GAPS = Columns(
    window="bigint", topic="string", partition="bigint", begin_ms="bigint", end_ms="bigint"
)


class Stage(NamedTuple):
    """A step of the check.

    - `run`: takes complete groups of `group_by`, in the order of `order_by`, which begins with
      the columns of `group_by`. Its memory is bounded as its stage documents.
    """

    input: Columns
    group_by: tuple[str, ...]
    order_by: tuple[str, ...]
    output: Columns
    run: Run
