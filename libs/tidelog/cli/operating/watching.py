"""Follows an operation to its end: bars on a terminal, otherwise a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from tidelog.cli.exit_status import ExitStatus, TimedOutError
from tidelog.cli.operating.operation_view import progress_line, progress_text, state_text
from tidelog.cli.output import json_line, write_line, write_note

if TYPE_CHECKING:
    from tidelog.admin_messages import MoveProgress, Operation
    from tidelog.client import Admin

DEFAULT_INTERVAL_SECONDS = 1.0
# Active partitions are shown only if the operation's moves fit into one page.
MAX_MOVES_FETCHED = 1_000


class View(Protocol):
    @property
    def needs_moves(self) -> bool: ...

    def show(self, operation: Operation, active: Sequence[MoveProgress], now_ms: int) -> None: ...


class PlainView:
    """Prints a line whenever something has changed."""

    needs_moves = False

    def __init__(self) -> None:
        self._shown = ""

    def show(self, operation: Operation, active: Sequence[MoveProgress], now_ms: int) -> None:  # noqa: ARG002
        shown = f"{state_text(operation)} {progress_text(operation.progress)}"
        if shown != self._shown:
            write_line(progress_line(operation, now_ms))
            sys.stdout.flush()
        self._shown = shown


class JsonView:
    """Prints a document a line whenever something has changed."""

    needs_moves = False

    def __init__(self) -> None:
        self._shown: Operation | None = None

    def show(self, operation: Operation, active: Sequence[MoveProgress], now_ms: int) -> None:  # noqa: ARG002
        if operation != self._shown:
            write_line(json_line(asdict(operation)))
            sys.stdout.flush()
        self._shown = operation


class SilentView:
    needs_moves = False

    def show(self, operation: Operation, active: Sequence[MoveProgress], now_ms: int) -> None:
        pass


@contextmanager
def opened_view(json_view: View | None = None) -> Iterator[View]:
    """Yields the view for JSON, if it is given, or one for people."""
    if json_view is not None or not sys.stdout.isatty():
        yield json_view or PlainView()
        return
    from tidelog.cli.operating.bars import bars

    with bars() as view:
        yield view


async def watch(
    admin: Admin,
    operation_id: str,
    view: View,
    *,
    interval_seconds: float = DEFAULT_INTERVAL_SECONDS,
    timeout_seconds: float | None = None,
) -> Operation:
    """Returns the operation as it ended. Raises `TimedOutError` after `timeout_seconds`."""
    import asyncio

    last: Operation | None = None
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                last = await admin.describe_operation(operation_id)
                view.show(last, await _active(admin, last, view), now_ms())
                if last.has_ended:
                    return last
                await asyncio.sleep(interval_seconds)
    except TimeoutError:
        progress = "" if last is None else f" ({progress_text(last.progress)})"
        raise TimedOutError(
            f"operation {operation_id} had not ended after {timeout_seconds:g} s{progress}; it "
            f"continues: tidelog operations watch {operation_id}"
        ) from None
    except asyncio.CancelledError:
        write_note(
            f"Operation {operation_id} continues. To follow it: tidelog operations watch "
            f"{operation_id}; to cancel it: tidelog operations cancel {operation_id}"
        )
        raise


async def _active(admin: Admin, operation: Operation, view: View) -> list[MoveProgress]:
    progress = operation.progress
    if not view.needs_moves or not 0 < progress.moves_active <= progress.moves:
        return []
    if progress.moves > MAX_MOVES_FETCHED:
        return []
    moves = await admin.operation_moves(operation.operation_id)
    return [move for move in moves if move.state == "active"]


def status_of_end(operation: Operation, target: str = "done") -> ExitStatus:
    return ExitStatus.DONE if operation.state == target else ExitStatus.FAILED


def now_ms() -> int:
    return time.time_ns() // 1_000_000
