"""`tidelog reassign` and `tidelog rebalance`: move partitions to named or to all brokers."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.completion import complete_topic
from tidelog.cli.exit_status import UsageError
from tidelog.cli.operating.beginning import OperationSpec, run_operation
from tidelog.cli.operating.documents import begun_document
from tidelog.cli.operating.options import MutationOptions, shared_options
from tidelog.cli.output import write_json, write_line
from tidelog.cli.session import Session, ending_with_a_status
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.admin_messages import Move

STDIN = "-"
MAX_MOVES = 100_000
# More text than MAX_MOVES moves take.
MAX_FILE_BYTES = 64 << 20


@shared_options(
    "dry_run", "yes", "watch", "operation_id", "expected_plan", "requested_by", "timeout"
)
def reassign(
    session: Session,
    options: MutationOptions,
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
) -> None:
    """Move partitions to named brokers.

    More or fewer brokers than before change the number of the partition's replicas. The same
    brokers in another order change the preferred leader. Shows the plan and asks for confirmation.
    Partitions stay available while they move.

    A file may be the output of another command with --dry-run --json. Then the moves are made
    exactly as shown, or rejected if a partition has changed since.
    """
    with ending_with_a_status(as_json=session.as_json):
        wanted = read_moves(moves or [], file)
    if not wanted:
        _tell_of_no_moves(session, dry_run=options.dry_run)
        return
    spec = OperationSpec(
        lambda admin: partial(admin.reassign, wanted),
        f"{plural(len(wanted), 'partition')} would be moved",
    )
    session.run(lambda: run_operation(session, options, spec))


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
    from tidelog.admin_messages import AcceptedOperation, Plan

    if session.as_json:
        nothing = AcceptedOperation(None, Plan((), 0, 0, 0, None, ()))
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


@shared_options(
    "dry_run", "yes", "watch", "operation_id", "expected_plan", "requested_by", "timeout"
)
def rebalance(session: Session, options: MutationOptions) -> None:
    """Spread all partitions evenly, with as few moves as possible.

    The numbers of replicas, and of preferred leaders, of any two current brokers differ by at most
    one afterwards. Replicas of a partition are in different racks while there are enough racks.
    Shows the plan and asks for confirmation. Partitions stay available while they move. The
    throttle bounds the moves, operations cancel stops them, and operations reverse undoes them.

    A plan can be saved, and run later exactly as shown: reassign --file takes the output of
    --dry-run --json.
    """
    spec = OperationSpec(lambda admin: admin.rebalance, "partitions of all topics would be moved")
    session.run(lambda: run_operation(session, options, spec))
