"""Formats partitions without a leader: what their replicas hold, and what a choice loses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.cli.output import ids_text, table_lines
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.admin_messages import Recovery, Survivor

# The longest time for brokers to describe their logs, if the command's timeout is longer.
MAX_DESCRIBE_MS = 10_000


def recovery_lines(recovery: Recovery, *, on_terminal: bool) -> Iterator[str]:
    yield f"{recovery.topic}/{recovery.partition} has no leader; it waits for {recovery.waits_for}."
    yield f"Last known to hold every committed record: {ids_text(recovery.last_known)}"
    columns = ("broker", "log", "high watermark", "last epoch", "intact", "would lose", "problem")
    rows = [_survivor_row(survivor) for survivor in recovery.survivors]
    yield from table_lines(columns, rows, on_terminal=on_terminal)


def _survivor_row(survivor: Survivor) -> tuple[object, ...]:
    if not survivor.described:
        return (survivor.broker_id, "-", "-", "-", "-", "not known", survivor.problem)
    watermark = survivor.high_watermark
    return (
        survivor.broker_id,
        f"{survivor.log_start_offset:,} to {survivor.log_end_offset:,}",
        "-" if watermark is None else f"{watermark:,}",
        "-" if survivor.last_epoch < 0 else str(survivor.last_epoch),
        "yes" if survivor.whole else "no",
        loss_text(survivor),
        survivor.problem or "-",
    )


def loss_text(survivor: Survivor) -> str:
    lost = survivor.lost_records
    if lost is None:
        return "not known"
    return plural(lost, "record") if lost else "nothing that others hold"


def choice_text(recovery: Recovery, broker_id: int) -> str:
    """Returns a sentence about what a choice would lose."""
    name = f"{recovery.topic}/{recovery.partition}"
    survivor = next((s for s in recovery.survivors if s.broker_id == broker_id), None)
    if survivor is None:
        return f"Broker {broker_id} holds no replica of {name}: the choice will be rejected."
    away = [b for b in recovery.last_known if b != broker_id]
    if not survivor.described:
        loss = f"the number of lost records is not known: {survivor.problem}"
    elif survivor.lost_records is None:
        loss = "the number of lost records is not known"
    elif survivor.lost_records:
        loss = f"{plural(survivor.lost_records, 'record')} that others hold would be truncated"
    else:
        loss = "nothing that others hold would be truncated"
    hidden = (
        f" What only {ids_text(away)} hold{'s' if len(away) == 1 else ''} is lost, too, even if "
        "it was acknowledged."
        if any(not s.described and s.broker_id in away for s in recovery.survivors)
        else ""
    )
    return f"If broker {broker_id} leads {name}, {loss}.{hidden}"
