"""Shows the plan of `tidelog apply`: a table for people, a document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.cli.applying.apply_plan import ApplyPlan
from tidelog.cli.applying.topic_diff import TOPIC, TopicChange, shown_value
from tidelog.cli.operating.operation_view import state_text
from tidelog.cli.output import paragraph, table_lines
from tidelog.phrases import plural

_NOTHING = "-"


def plan_lines(plan: ApplyPlan, *, on_terminal: bool) -> Iterator[str]:
    for operation in plan.waits_for:
        yield from paragraph(
            f"Operation {operation.operation_id} ({operation.kind}) moves partitions of these "
            f"topics and is {state_text(operation)}; its end comes first.",
            on_terminal=on_terminal,
        )
    if plan.changes:
        columns = ("topic", "action", "field", "before", "after")
        rows = [row for change in plan.changes for row in _rows(change)]
        yield from table_lines(columns, rows, on_terminal=on_terminal)
        yield ""
        yield f"{_summary(plan)}."
    for warning in (*plan.risks, *plan.warnings):
        yield from paragraph(f"Warning: {warning}", on_terminal=on_terminal)


def plan_document(plan: ApplyPlan) -> dict[str, Any]:
    return {
        "differs": plan.differs,
        "digest": plan.digest,
        "changes": [_document(change) for change in plan.changes],
        "waits_for": [operation.operation_id for operation in plan.waits_for],
        "risks": list(plan.risks),
        "warnings": list(plan.warnings),
    }


def _rows(change: TopicChange) -> Iterator[tuple[str, ...]]:
    fields = [found for found in change.differences if found.field != TOPIC]
    if not fields:
        yield change.topic, change.action, _NOTHING, _NOTHING, _NOTHING
    for found in fields:
        before, after = (shown_value(found, text) for text in (found.before, found.after))
        yield change.topic, change.action, found.field, before or _NOTHING, after or _NOTHING


def _summary(plan: ApplyPlan) -> str:
    counts = [
        (verb, sum(change.action == action for change in plan.changes))
        for verb, action in (
            ("to create", "create"),
            ("to change", "change"),
            ("to delete", "delete"),
        )
    ]
    return ", ".join(f"{plural(count, 'topic')} {verb}" for verb, count in counts if count)


def _document(change: TopicChange) -> dict[str, Any]:
    return {
        "action": change.action,
        "topic": change.topic,
        "topic_id": change.topic_id or None,
        "differences": [
            {"field": found.field, "before": found.before or None, "after": found.after or None}
            for found in change.differences
        ],
    }
