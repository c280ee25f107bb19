"""`tidelog reassign`: moves partitions to named brokers."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.completion import complete_topic
from tidelog.cli.exit_status import UsageError
from tidelog.cli.operating.beginning import Wish, run_operation
from tidelog.cli.operating.documents import begun_document
from tidelog.cli.operating.manner import (
    USUAL_TIMEOUT_SECONDS,
    DryRunOption,
    ExpectedPlanOption,
    Manner,
    OperationIdOption,
    RequestedByOption,
    TimeoutOption,
    WatchOption,
    YesOption,
)
from tidelog.cli.output import write_json, write_line
from tidelog.cli.session import (
    BootstrapOption,
    JsonOption,
    Session,
    ending_with_a_status,
    session_of,
)
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.client.operations import Move

STDIN = "-"
MAX_MOVES = 100_000
# More text than MAX_MOVES moves take.
MAX_FILE_BYTES = 64 << 20


def reassign(
    context: typer.Context,
    moves: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC/PARTITION=BROKER,…",
            help="The replicas that a partition is to have, the preferred leader first.",
            show_default=False,
            autocompletion=complete_topic,
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            show_default=False,
            help="Moves as --dry-run --json prints them, or a line TOPIC/PARTITION=BROKER,… for "
            "each; - is stdin.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    watch: WatchOption = False,
    operation_id: OperationIdOption = "",
    expected_plan: ExpectedPlanOption = None,
    requested_by: RequestedByOption = None,
    timeout: TimeoutOption = USUAL_TIMEOUT_SECONDS,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move partitions to named brokers.

    More or fewer brokers than before change the number of the partition's replicas. The same
    brokers in another order change the preferred leader. Shows the plan and asks for confirmation.
    Partitions stay available while they move.

    A file may be the output of another command with --dry-run --json. Then the moves are made
    exactly as shown, or rejected if a partition has changed since.
    """
    session = session_of(context, bootstrap, as_json)
    with ending_with_a_status(as_json=session.as_json):
        wanted = read_moves(moves or [], file)
    if not wanted:
        _tell_of_no_moves(session, dry_run=dry_run)
        return
    manner = Manner(dry_run, yes, operation_id, requested_by, timeout, expected_plan)

    wish = Wish(
        lambda admin: partial(admin.reassign, wanted),
        f"{plural(len(wanted), 'partition')} would be moved",
    )
    session.run(lambda: run_operation(session, manner, wish, follow=watch))


def read_moves(words: list[str], file: str | None) -> list[Move]:
    """Returns the moves of arguments and file. A file without moves is valid: a plan may move
    nothing. Raises `UsageError`, and `OSError` for a file that cannot be read."""
    from tidelog.cli.operating.move_files import parse_moves
    from tidelog.cli.operating.targets import parse_move

    wanted = [parse_move(word) for word in words]
    if file is not None:
        source = "stdin" if file == STDIN else file
        wanted += parse_moves(_text_of(file, source), source)
    if not wanted and file is None:
        raise UsageError("no moves are named; name them as sea/0=4,2, or in a file with --file")
    if len(wanted) > MAX_MOVES:
        raise UsageError(
            f"{len(wanted):,} moves are named; an operation has at most {MAX_MOVES:,}: make "
            "several of them"
        )
    return wanted


def _tell_of_no_moves(session: Session, *, dry_run: bool) -> None:
    from tidelog.client.operations import BegunOperation, Plan

    if session.as_json:
        nothing = BegunOperation(None, Plan((), 0, 0, 0, None, ()))
        write_json(begun_document(nothing, dry_run=dry_run))
    else:
        write_line("The file holds no moves: nothing was begun.")


def _text_of(file: str, source: str) -> str:
    if file == STDIN:
        content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    else:
        with Path(file).open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{source} is larger than {MAX_FILE_BYTES:,} bytes; make it several files")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is no text in UTF-8 ({error}); {source} cannot be read"
        ) from None
