"""`tidelog operations`: lists, follows, cancels and reverses long-running operations."""

from __future__ import annotations

import enum
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.completion import OperationArgument, RunningOperationArgument
from tidelog.cli.exit_status import EPILOG, ExitStatus
from tidelog.cli.operating.beginning import follow_to_end, in_doubt, run_operation
from tidelog.cli.operating.command_options import MutationOptions, operation_options, shared_options
from tidelog.cli.operating.consent import check_can_confirm, confirms, declined, notes_on_terminal
from tidelog.cli.operating.documents import plan_document, progress_document
from tidelog.cli.operating.help_epilog import (
    BEGUN_FIELDS,
    OPERATION_FIELDS,
    PLAN_FIELDS,
    help_epilog,
)
from tidelog.cli.operating.operation_view import (
    end_text,
    operation_lines,
    progress_text,
    state_text,
)
from tidelog.cli.operating.plan_view import MAX_MOVES_CONFIRMED, move_lines
from tidelog.cli.operating.watching import (
    DEFAULT_INTERVAL_SECONDS,
    JsonView,
    now_ms,
    opened_view,
    status_of_end,
)
from tidelog.cli.operating.watching import watch as watch_operation
from tidelog.cli.output import (
    ids_text,
    timestamp_text,
    write_json,
    write_line,
    write_note,
    write_table,
)
from tidelog.cli.session import Session, seconds_option
from tidelog.errors import TidelogError
from tidelog.phrases import plural
from tidelog.units import size_text

if TYPE_CHECKING:
    from tidelog.admin_messages import MoveProgress, Operation, Plan

MAX_INTERVAL_SECONDS = 3_600.0

# Choices of options; the values are the names in lower case.
OperationState = enum.StrEnum("OperationState", "RUNNING CANCELLING DONE CANCELLED FAILED")
OperationKind = enum.StrEnum(
    "OperationKind",
    "REASSIGNMENT REBALANCE BROKERS_ADD BROKERS_REMOVE SET_REPLICATION_FACTOR REVERSAL",
)
MoveState = enum.StrEnum("MoveState", "WAITING ACTIVE DONE DROPPED")

app = typer.Typer(no_args_is_help=True, epilog=EPILOG)


@app.callback()
def operations() -> None:
    """List, follow, cancel and reverse long-running operations.

    reassign, rebalance, brokers add, brokers remove and topics set-replication-factor begin
    operations. The cluster stores each under an id. If the controller changes, the next one
    continues it. The last 100 operations that have ended can still be described.
    """


@app.command(
    "list",
    epilog=help_epilog(
        "tidelog operations list",
        "tidelog operations list --state running --json",
        json=f"a list; of each: {OPERATION_FIELDS}",
    ),
)
@shared_options("timeout_seconds")
async def list_(
    session: Session,
    options: MutationOptions,
    state: Annotated[
        list[OperationState] | None,
        typer.Option("--state", help="Only in this state; may be repeated.", show_default=False),
    ] = None,
    kind: Annotated[
        list[OperationKind] | None,
        typer.Option("--kind", help="Only of this kind; may be repeated.", show_default=False),
    ] = None,
) -> None:
    """List running and ended operations, the newest first."""
    async with await options.admin(session) as admin:
        found = await admin.list_operations(state or (), kind or ())
    if session.as_json:
        write_json([asdict(operation) for operation in found])
    elif not found:
        write_note("There are no such operations.")
    else:
        columns = ("operation", "kind", "state", "partitions", "requested", "by", "ends")
        write_table(columns, [_row(operation) for operation in found])


@app.command(
    epilog=help_epilog(
        "tidelog operations describe grow",
        "tidelog operations describe grow --json",
        json=OPERATION_FIELDS,
    )
)
@shared_options("timeout_seconds")
async def describe(
    session: Session, options: MutationOptions, operation_id: OperationArgument
) -> None:
    """Show an operation: its requester, its request and its progress."""
    async with await options.admin(session) as admin:
        operation = await admin.describe_operation(operation_id)
    if session.as_json:
        write_json(asdict(operation))
        return
    for line in operation_lines(operation, now_ms()):
        write_line(line)


@app.command(
    epilog=help_epilog(
        "tidelog operations moves grow",
        "tidelog operations moves grow --state active",
        json="a list; of each: move [topic, topic_id, partition, original, target], state "
        "(waiting, active, done, dropped), waits_for (ids of replicas that are to be in sync), "
        "bytes_to_copy, bytes_copied (null: nothing is copied, or no leader has reported it).",
    )
)
@shared_options("timeout_seconds")
async def moves(
    session: Session,
    options: MutationOptions,
    operation_id: OperationArgument,
    state: Annotated[
        list[MoveState] | None,
        typer.Option("--state", help="Only in this state; may be repeated.", show_default=False),
    ] = None,
) -> None:
    """Show each move, and the replicas that it waits for."""
    async with await options.admin(session) as admin:
        found = await admin.operation_moves(operation_id)
    selected = [move for move in found if not state or move.state in state]
    if session.as_json:
        write_json([progress_document(move) for move in selected])
    elif not selected:
        write_note("There are no such moves.")
    else:
        columns = ("partition", "replicas", "then", "state", "waits for", "copied")
        write_table(columns, [_move_row(move) for move in selected])


@app.command(
    epilog=help_epilog(
        "tidelog operations watch grow",
        "tidelog operations watch grow --timeout 10m --json",
        json=f"a document a line, whenever something has changed: {OPERATION_FIELDS}",
    )
)
@shared_options(streams=True)
async def watch(
    session: Session,
    operation_id: OperationArgument,
    interval: Annotated[
        float,
        seconds_option(
            "--interval",
            "Time between two requests.",
            MAX_INTERVAL_SECONDS,
            DEFAULT_INTERVAL_SECONDS,
        ),
    ] = DEFAULT_INTERVAL_SECONDS,
    timeout: Annotated[
        float | None,
        seconds_option(
            "--timeout", "Stop after this time, with exit status 5. Default: when it has ended."
        ),
    ] = None,
) -> ExitStatus:
    """Follow an operation to its end.

    Shows progress bars on a terminal, otherwise a line for each change. Exit status 0: it is done;
    1: it was cancelled or has failed. Ctrl-C leaves the operation running.
    """
    async with await session.admin() as admin:
        with opened_view(JsonView() if session.as_json else None) as view:
            ended = await watch_operation(
                admin, operation_id, view, interval_seconds=interval, timeout_seconds=timeout
            )
    return status_of_end(ended)


@app.command(
    epilog=help_epilog(
        "tidelog operations cancel grow --dry-run",
        "tidelog operations cancel grow --yes --watch",
        json=(
            "dry_run, operation (null in a dry run), plan (of the rollback; null unless a dry "
            "run).",
            f"Of operation: {OPERATION_FIELDS}",
            f"Of {PLAN_FIELDS}",
        ),
    )
)
@shared_options("dry_run", "yes", "watch", "requested_by", "expected_revision", "timeout_seconds")
async def cancel(
    session: Session, options: MutationOptions, operation_id: RunningOperationArgument
) -> ExitStatus:
    """Stop an operation.

    Waiting moves are dropped, and active moves are rolled back. Moves that are done stay;
    operations reverse moves them back, too. No committed record is lost: a move that can only be
    rolled back once a replica has caught up delays the cancellation.
    """
    async with await options.admin(session) as admin:
        current = await admin.describe_operation(operation_id)
        check_can_confirm(session, options, f"operation {operation_id} would be cancelled")
        if options.dry_run or not (options.yes or current.state in ("cancelling", "cancelled")):
            plan = await admin.plan_cancellation(
                operation_id, expected_revision=options.expected_revision
            )
            if options.dry_run:
                _show_cancellation(session, current, plan)
                return ExitStatus.DONE
            if not confirms(_rollback_lines(current, plan, on_terminal=notes_on_terminal())):
                return declined(session, "Nothing was cancelled.")
        try:
            operation = await admin.cancel_operation(
                operation_id, expected_revision=options.expected_revision
            )
        except TidelogError as error:
            raise in_doubt(error) from error
        status = ExitStatus.DONE
        if options.watch and not operation.has_ended:
            operation, status = await follow_to_end(session, admin, operation_id, "cancelled")
    if session.as_json:
        write_json({"dry_run": False, "operation": asdict(operation), "plan": None})
    else:
        progress = progress_text(operation.progress)
        write_line(f"Operation {operation_id} is {state_text(operation)}; {progress}.")
    return status


@app.command(
    epilog=help_epilog(
        "tidelog operations reverse grow --dry-run",
        "tidelog operations reverse grow --operation-id shrink-again --yes --watch",
        json=BEGUN_FIELDS,
    )
)
@operation_options
async def reverse(
    session: Session, options: MutationOptions, reversed_operation_id: OperationArgument
) -> ExitStatus:
    """Move back what an operation has moved.

    The reversal is an operation of its own. Partitions that have moved again since, or are gone,
    are left alone. Shows the plan and asks for confirmation.
    """
    return await run_operation(
        session,
        options,
        lambda admin: partial(admin.reverse_operation, reversed_operation_id),
        danger=f"what operation {reversed_operation_id} has moved would be moved back",
    )


def _row(operation: Operation) -> tuple[object, ...]:
    progress = operation.progress
    ended = timestamp_text(operation.ended_at_ms)[:19] + "Z" if operation.ended_at_ms else ""
    return (
        operation.operation_id,
        operation.kind,
        operation.state,
        f"{progress.moves_done:,} of {progress.moves:,}",
        f"{timestamp_text(operation.requested_at_ms)[:19]}Z",
        operation.requested_by or operation.requested_from or "-",
        ended or end_text(operation, now_ms()),
    )


def _move_row(progress: MoveProgress) -> tuple[object, ...]:
    move, copied = progress.move, "-"
    if progress.bytes_to_copy is not None and progress.bytes_copied is not None:
        copied = f"{size_text(progress.bytes_copied)} of {size_text(progress.bytes_to_copy)}"
    return (
        f"{move.topic}/{move.partition}",
        ids_text(move.original),
        ids_text(move.target),
        progress.state,
        ids_text(progress.waits_for),
        copied,
    )


def _show_cancellation(session: Session, operation: Operation, plan: Plan) -> None:
    import sys

    if session.as_json:
        write_json({"dry_run": True, "operation": None, "plan": plan_document(plan)})
        return
    for line in _rollback_lines(operation, plan, on_terminal=sys.stdout.isatty(), max_moves=None):
        write_line(line)
    write_note("This is a dry run: nothing was changed.")


def _rollback_lines(
    operation: Operation,
    plan: Plan,
    *,
    on_terminal: bool,
    max_moves: int | None = MAX_MOVES_CONFIRMED,
) -> list[str]:
    progress = operation.progress
    waiting = progress.moves - progress.moves_done - progress.moves_active - progress.moves_dropped
    lines = [
        f"Of operation {operation.operation_id} ({operation.kind}), "
        f"{plural(progress.moves_done, 'completed move')} would stay, "
        f"{plural(len(plan.moves), 'active move')} would be rolled back, and "
        f"{plural(max(0, waiting), 'waiting move')} would be dropped.",
        *(f"Warning: {warning}" for warning in plan.warnings),
    ]
    if plan.moves:
        lines += ["", *move_lines(plan.moves[:max_moves], on_terminal=on_terminal)]
    return lines
