"""Begins operations: shows the plan, asks for confirmation, runs it, and follows it to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from tidelog.cli.exit_status import ExitStatus, TimedOutError
from tidelog.cli.operating.command_options import MutationOptions
from tidelog.cli.operating.consent import (
    check_can_confirm,
    check_protected_context,
    confirms,
    declined,
    notes_on_terminal,
)
from tidelog.cli.operating.documents import begun_document
from tidelog.cli.operating.operation_view import progress_text, state_text
from tidelog.cli.operating.plan_view import MAX_MOVES_CONFIRMED, plan_headline, plan_lines
from tidelog.cli.operating.watching import SilentView, opened_view, status_of_end, watch
from tidelog.cli.output import ids_text, write_json, write_line, write_note
from tidelog.cli.session import Session
from tidelog.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.admin_messages import AcceptedOperation, Operation, Plan
    from tidelog.client import Admin


class Begins(Protocol):
    """A call of `Admin` that begins an operation, with its own arguments bound."""

    def __call__(
        self, *, operation_id: str, dry_run: bool, expected_plan: str
    ) -> Awaitable[AcceptedOperation]: ...


async def run_operation(
    session: Session,
    options: MutationOptions,
    call_of: Callable[[Admin], Begins],
    *,
    danger: str,
) -> ExitStatus:
    """Begins an operation. `danger`: what would happen, as a sentence without its end."""
    async with await options.admin(session) as admin:
        if options.dry_run:
            planned = await _planned(options, call_of(admin))
            _show_plan(session, planned)
            return ExitStatus.DONE
        expected = options.expected_plan or ""
        if options.yes:
            check_protected_context(session, options, danger)
        # A repeated request is answered without a new plan and without confirmation.
        if not options.yes and not await is_known(admin, options.operation_id):
            planned = await _planned(options, call_of(admin))
            check_can_confirm(session, options, danger)
            expected = planned.plan.digest
            shown = plan_lines(
                planned.plan, on_terminal=notes_on_terminal(), max_moves=MAX_MOVES_CONFIRMED
            )
            if planned.plan.moves and not confirms(shown):
                return declined(session, "Nothing was started.")
        operation_id = options.operation_id or admin.new_operation_id()
        try:
            # The user agreed to this plan, by confirmation or by its digest, and to no other.
            begun = await call_of(admin)(
                operation_id=operation_id, dry_run=False, expected_plan=expected
            )
        except TidelogError as error:
            raise in_doubt(error, operation_id) from error
        return await _report_begun(session, admin, begun, follow=options.watch)


async def _planned(options: MutationOptions, begin: Begins) -> AcceptedOperation:
    return await begin(
        operation_id=options.operation_id,
        dry_run=True,
        expected_plan=options.expected_plan or "",
    )


async def is_known(admin: Admin, operation_id: str) -> bool:
    if not operation_id:
        return False
    try:
        await admin.describe_operation(operation_id)
    except TidelogError as error:
        if error.code is ErrorCode.UNKNOWN_OPERATION:
            return False
        raise
    return True


def in_doubt(error: TidelogError, operation_id: str = "") -> Exception:
    """A missing answer leaves the outcome unknown."""
    if error.code is not ErrorCode.REQUEST_TIMED_OUT:
        return error
    again = f". The same again with --operation-id {operation_id} is safe" if operation_id else ""
    return TimedOutError(f"{error}{again}")


@contextmanager
def traced_change(admin: Admin) -> Iterator[str]:
    """Yields the trace id of a change. Its errors are those of `in_doubt`."""
    with admin.traced() as trace_id:
        try:
            yield trace_id
        except TidelogError as error:
            raise in_doubt(error) from error


async def follow_to_end(
    session: Session, admin: Admin, operation_id: str, target: str = "done"
) -> tuple[Operation, ExitStatus]:
    """Follows an operation to its end. Shows its progress unless the output is JSON."""
    with opened_view(SilentView() if session.as_json else None) as view:
        ended = await watch(admin, operation_id, view)
    return ended, status_of_end(ended, target)


async def _report_begun(
    session: Session, admin: Admin, begun: AcceptedOperation, *, follow: bool
) -> ExitStatus:
    operation, status = begun.operation, ExitStatus.DONE
    assert operation is not None
    if not session.as_json:
        for line in begun_lines(operation, begun.plan):
            write_line(line)
    if follow and not operation.has_ended:
        operation, status = await follow_to_end(session, admin, operation.operation_id)
    elif operation.state == "failed":
        status = ExitStatus.FAILED
    if session.as_json:
        write_json(begun_document(replace(begun, operation=operation), dry_run=False))
    elif not operation.has_ended:
        write_note(f"To follow it: tidelog operations watch {operation.operation_id}")
    return status


def note_pending(brokers: Sequence[int], undone: str) -> None:
    """`undone`: what the brokers have not done yet."""
    if brokers:
        write_note(
            f"Brokers {ids_text(brokers)} have not {undone} yet; they continue by themselves."
        )


def begun_lines(operation: Operation, plan: Plan) -> list[str]:
    head = f"Operation {operation.operation_id} ({operation.kind}) is {state_text(operation)}"
    if plan.move_count:
        return [f"{head}.", plan_headline(plan), *(f"Warning: {w}" for w in plan.warnings)]
    return [f"{head}; {progress_text(operation.progress)}."]


def _show_plan(session: Session, planned: AcceptedOperation) -> None:
    import sys

    if session.as_json:
        write_json(begun_document(planned, dry_run=True))
        return
    for line in plan_lines(planned.plan, on_terminal=sys.stdout.isatty()):
        write_line(line)
    write_note("This is a dry run: nothing was changed.")
    if planned.plan.moves:
        write_note(f"To begin this plan and no other: --expected-plan {planned.plan.digest}")
