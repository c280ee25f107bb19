"""`tidelog throttle`: the bound on the bandwidth of moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.exit_status import EPILOG, ExitStatus
from tidelog.cli.operating.beginning import in_doubt
from tidelog.cli.operating.manner import (
    USUAL_TIMEOUT_SECONDS,
    DryRunOption,
    ExpectedRevisionOption,
    Manner,
    RequestedByOption,
    TimeoutOption,
)
from tidelog.cli.operating.manual import manual
from tidelog.cli.operating.rates import parse_rate
from tidelog.cli.output import size_text, write_json, write_line, write_note
from tidelog.cli.session import (
    BootstrapOption,
    JsonOption,
    Session,
    ending_with_a_status,
    session_of,
)
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.admin_messages import Throttle

app = typer.Typer(
    no_args_is_help=True, epilog=EPILOG, help="Bound what moves carry, also while they run."
)


@app.command(
    epilog=manual(
        "tidelog throttle describe",
        json="bytes_per_second (null: no bound), revision (0: never set).",
    )
)
def describe(
    context: typer.Context,
    timeout: TimeoutOption = USUAL_TIMEOUT_SECONDS,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the bound on the bandwidth of moves.

    It limits what each broker may send to, and receive as, replicas that are being added. Replicas
    that are in sync are never slowed down.
    """
    session = session_of(context, bootstrap, as_json)
    session.run(lambda: _describe(session, Manner(timeout_seconds=timeout)))


@app.command(
    "set",
    epilog=manual(
        "tidelog throttle set 50MB",
        "tidelog throttle set none",
        json="dry_run, bytes_per_second (null: no bound), before [bytes_per_second], revision, "
        "trace_id (null in a dry run).",
    ),
)
def set_(
    context: typer.Context,
    rate: Annotated[
        str,
        typer.Argument(
            metavar="RATE",
            help="Bytes per second of each broker, as 65536, 500kB, 50MB or 64MiB; none lifts it.",
        ),
    ],
    dry_run: DryRunOption = False,
    requested_by: RequestedByOption = None,
    expected_revision: ExpectedRevisionOption = 0,
    timeout: TimeoutOption = USUAL_TIMEOUT_SECONDS,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bound the bandwidth of moves, from now on.

    The bound applies to active moves, too. It limits what each broker may send to, and receive as,
    replicas that are being added. Replicas that are in sync are never slowed down.
    """
    session = session_of(context, bootstrap, as_json)
    with ending_with_a_status(as_json=session.as_json):
        bound = parse_rate(rate)
    manner = Manner(dry_run, requested_by=requested_by, timeout_seconds=timeout)
    session.run(lambda: _set(session, manner, bound, expected_revision))


async def _describe(session: Session, manner: Manner) -> None:
    async with await manner.admin(session) as admin:
        throttle = await admin.describe_throttle()
    if session.as_json:
        write_json({"bytes_per_second": throttle.bytes_per_second, "revision": throttle.revision})
    else:
        write_line(f"Moves carry {rate_text(throttle)}.")


async def _set(
    session: Session, manner: Manner, bound: int | None, expected_revision: int
) -> ExitStatus:
    async with await manner.admin(session) as admin:
        before = await admin.describe_throttle()
        with admin.traced() as trace_id:
            try:
                throttle = await admin.set_throttle(
                    bound, expected_revision=expected_revision, dry_run=manner.dry_run
                )
            except TidelogError as error:
                raise in_doubt(error) from error
    if session.as_json:
        write_json(
            {
                "dry_run": manner.dry_run,
                "bytes_per_second": bound,
                "before": {"bytes_per_second": before.bytes_per_second},
                "revision": throttle.revision,
                "trace_id": None if manner.dry_run else trace_id,
            }
        )
        return ExitStatus.DONE
    would = "would carry" if manner.dry_run else "carry"
    write_line(f"Moves {would} {rate_text(throttle)}; before: {rate_text(before)}.")
    if manner.dry_run:
        write_note("This is a dry run: nothing was changed.")
    return ExitStatus.DONE


def rate_text(throttle: Throttle) -> str:
    rate = throttle.bytes_per_second
    if rate is None:
        return "as much as they can"
    exact = "" if rate < 1000 else f" ({rate:,} bytes)"
    return f"at most {size_text(rate)} a second{exact} from and to each broker"
