"""Formats a plan for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tidelog.cli.output import ids_text, paragraph, table_lines, write_table
from tidelog.model import NO_LEADER
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.admin_messages import LeaderChange, Move, Plan

# Moves shown before a confirmation; a dry run shows all.
MAX_MOVES_CONFIRMED = 20


def plan_lines(plan: Plan, *, on_terminal: bool, max_moves: int | None = None) -> Iterator[str]:
    """`max_moves`: None for all."""
    yield plan_headline(plan)
    for warning in plan.warnings:
        yield from paragraph(f"Warning: {warning}", on_terminal=on_terminal)
    if not plan.moves:
        return
    yield ""
    yield from _share_lines(plan, on_terminal=on_terminal)
    yield ""
    shown = plan.moves if max_moves is None else plan.moves[:max_moves]
    yield from move_lines(shown, on_terminal=on_terminal)
    if len(shown) < len(plan.moves):
        more = plural(len(plan.moves) - len(shown), "more partition")
        yield f"… and {more}; --dry-run shows all"


def plan_headline(plan: Plan) -> str:
    if not plan.move_count:
        return "Nothing moves: every partition has its target replicas already."
    minimum = plan.minimum_replicas_added
    least = "" if minimum is None else f" (the minimum for this balance: {minimum:,})"
    moved = plural(plan.move_count, "partition gets", "partitions get")
    copied = plural(plan.replicas_added, "replica is", "replicas are")
    led = plural(plan.leaders_changed, "preferred leader changes", "preferred leaders change")
    return f"{moved} other replicas, or another order of them: {copied} copied{least}, {led}."


def move_lines(moves: Sequence[Move], *, on_terminal: bool) -> list[str]:
    rows = [
        (
            f"{move.topic}/{move.partition}",
            ids_text(move.original),
            ids_text(move.target),
            ids_text([b for b in move.target if b not in move.original]),
            ids_text([b for b in move.original if b not in move.target]),
        )
        for move in moves
    ]
    columns = ("partition", "replicas", "then", "copied to", "deleted from")
    return table_lines(columns, rows, on_terminal=on_terminal)


def write_leaders(changes: Sequence[LeaderChange]) -> None:
    rows = [
        (
            f"{change.topic}/{change.partition}",
            "none" if change.leader_before == NO_LEADER else str(change.leader_before),
            str(change.leader),
            "ok" if change.error is None else change.error.message,
        )
        for change in changes
    ]
    write_table(("partition", "leader", "then", "result"), rows)


def _share_lines(plan: Plan, *, on_terminal: bool) -> list[str]:
    rows = [
        (
            share.broker_id,
            share.replicas_before,
            share.replicas_after,
            share.leaders_before,
            share.leaders_after,
        )
        for share in plan.brokers
    ]
    columns = ("broker", "replicas", "then", "preferred leaders", "then")
    return table_lines(columns, rows, on_terminal=on_terminal)
