"""Progress bars of an operation, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.text import Text

from tidelog.cli.operating.operation_view import end_text, state_text
from tidelog.cli.output import ids_text
from tidelog.units import size_text

if TYPE_CHECKING:
    from tidelog.admin_messages import MoveProgress, Operation

# Active partitions that are shown; others are counted.
MAX_ACTIVE_SHOWN = 8
REFRESHES_PER_SECOND = 4


@contextmanager
def bars(console: Console | None = None) -> Iterator[BarsView]:
    view = BarsView()
    with Live(
        console=console or Console(),
        get_renderable=view.renderable,
        refresh_per_second=REFRESHES_PER_SECOND,
    ):
        yield view


class BarsView:
    """Progress bars. The last state stays on the screen."""

    needs_moves = True

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[amount]}", markup=False),
        )
        self._tasks: dict[str, TaskID] = {}
        self._head = ""
        self._notes: list[str] = []

    def renderable(self) -> Group:
        notes = [Text(note, overflow="ellipsis", no_wrap=True) for note in self._notes]
        return Group(Text(self._head), self._progress, *notes)

    def show(self, operation: Operation, active: Sequence[MoveProgress], now_ms: int) -> None:
        done = operation.progress
        self._head = (
            f"Operation {operation.operation_id} ({operation.kind}) {state_text(operation)}"
        )
        self._bar("partitions", done.moves_done, done.moves)
        if done.replicas_to_add:
            self._bar("replicas copied", done.replicas_added, done.replicas_to_add)
        if done.bytes_to_copy:
            rate = f", {size_text(done.bytes_per_second)}/s" if done.bytes_per_second else ""
            amount = f"{size_text(done.bytes_copied)} of {size_text(done.bytes_to_copy)}{rate}"
            self._bar("bytes", done.bytes_copied, done.bytes_to_copy, amount)
        self._notes = [] if operation.has_ended else [f"Ends {end_text(operation, now_ms)}"]
        self._notes += [_active_line(move) for move in active[:MAX_ACTIVE_SHOWN]]
        if len(active) > MAX_ACTIVE_SHOWN:
            self._notes.append(f"… and {len(active) - MAX_ACTIVE_SHOWN} more")

    def _bar(self, what: str, done: int, total: int, amount: str = "") -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, amount="", total=None)
        settings: dict[str, Any] = {"amount": amount or f"{done:,} of {total:,}"}
        # An operation without moves is done at once.
        self._progress.update(
            self._tasks[what], completed=done if total else 1, total=total or 1, **settings
        )


def _active_line(progress: MoveProgress) -> str:
    move = progress.move
    line = f"  {move.topic}/{move.partition} → {ids_text(move.target)}"
    if progress.bytes_to_copy is not None and progress.bytes_copied is not None:
        line += f"  {size_text(progress.bytes_copied)} of {size_text(progress.bytes_to_copy)}"
    if progress.waits_for:
        line += f"  waits for {ids_text(progress.waits_for)}"
    return line
