"""`tidelog reassign` and `tidelog rebalance`: move partitions to named or to all brokers."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.completion import complete_topic
from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.operating.beginning import run_operation
from tidelog.cli.operating.command_options import MutationOptions, operation_options
from tidelog.cli.operating.documents import begun_document
from tidelog.cli.output import write_json, write_line
from tidelog.cli.session import Session
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.admin_messages import Move

STDIN = "-"
MAX_MOVES = 100_000
# More text than MAX_MOVES moves take.
MAX_FILE_BYTES = 64 << 20


@operation_options
async def reassign(
    session: Session,
    options: MutationOptions,
    moves: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC/PARTITION=BROKER,…",
            help="New replicas of a partition, the preferred leader first.",
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
) -> ExitStatus:
    """Move partitions to named brokers.

    More or fewer brokers than before change the number of the partition's replicas. The same
    brokers in another order change the preferred leader. Shows the plan and asks for confirmation.
    Partitions stay available while they move.

    A file may be the output of another command with --dry-run --json. Then the moves are made
    exactly as shown, or rejected if a partition has changed since.
    """
    given = read_moves(moves or [], file)
    if not given:
        _report_no_moves(session, dry_run=options.dry_run)
        return ExitStatus.DONE
    return await run_operation(
        session,
        options,
        lambda admin: partial(admin.reassign, given),
        danger=f"{plural(len(given), 'partition')} would be moved",
    )


def read_moves(words: list[str], file: str | None) -> list[Move]:
    """Returns the moves of arguments and file. A file without moves is valid: a plan may move
    nothing. Raises `UsageError`, and `OSError` for a file that cannot be read."""
    from tidelog.cli.operating.move_files import parse_moves
    from tidelog.cli.operating.targets import parse_move

    moves = [parse_move(word) for word in words]
    if file is not None:
        source = "stdin" if file == STDIN else file
        moves += parse_moves(_text_of(file, source), source)
    if not moves and file is None:
        raise UsageError("no moves are named; name them as sea/0=4,2, or in a file with --file")
    if len(moves) > MAX_MOVES:
        raise UsageError(
            f"{len(moves):,} moves are named; an operation has at most {MAX_MOVES:,}: split them "
            "into several operations"
        )
    return moves


def _report_no_moves(session: Session, *, dry_run: bool) -> None:
    from tidelog.admin_messages import AcceptedOperation, Plan

    if session.as_json:
        nothing = AcceptedOperation(None, Plan((), 0, 0, 0, None, ()))
        write_json(begun_document(nothing, dry_run=dry_run))
    else:
        write_line("The file contains no moves: nothing was started.")


def _text_of(file: str, source: str) -> str:
    if file == STDIN:
        content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    else:
        with Path(file).open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{source} is larger than {MAX_FILE_BYTES:,} bytes; split it")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not text in UTF-8 ({error})") from None


@operation_options
async def rebalance(session: Session, options: MutationOptions) -> ExitStatus:
    """Spread all partitions evenly, with as few moves as possible.

    The numbers of replicas, and of preferred leaders, of any two current brokers differ by at most
    one afterwards. Replicas of a partition are in different racks while there are enough racks.
    Shows the plan and asks for confirmation. Partitions stay available while they move. The
    throttle bounds the moves, operations cancel stops them, and operations reverse undoes them.

    A plan can be saved, and run later exactly as shown: reassign --file takes the output of
    --dry-run --json.
    """
    danger = "partitions of all topics would be moved"
    return await run_operation(session, options, lambda admin: admin.rebalance, danger=danger)
