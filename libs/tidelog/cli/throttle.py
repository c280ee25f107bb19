"""`tidelog throttle`: the limit on the bandwidth of moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.exit_status import EPILOG, ExitStatus
from tidelog.cli.operating.beginning import traced_change
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.operating.help_epilog import help_epilog
from tidelog.cli.operating.targets import parse_rate
from tidelog.cli.output import write_json, write_line, write_note
from tidelog.cli.session import Session
from tidelog.units import format_size_bytes

if TYPE_CHECKING:
    from tidelog.admin_messages import Throttle

app = typer.Typer(
    no_args_is_help=True, epilog=EPILOG, help="Limit the bandwidth of moves, also of active ones."
)


@app.command(
    epilog=help_epilog(
        "tidelog throttle describe",
        json="bytes_per_second (null: no limit), revision (0: never set).",
    )
)
@shared_options("timeout_seconds")
async def describe(session: Session, options: MutationOptions) -> None:
    """Show the limit on the bandwidth of moves.

    It limits what each broker may send to, and receive as, replicas that are being added. Replicas
    that are in sync are never slowed down.
    """
    async with await options.admin(session) as admin:
        throttle = await admin.describe_throttle()
    if session.as_json:
        write_json({"bytes_per_second": throttle.bytes_per_second, "revision": throttle.revision})
    else:
        write_line(f"Moves use {rate_text(throttle)}.")


@app.command(
    "set",
    epilog=help_epilog(
        "tidelog throttle set 50MB",
        "tidelog throttle set none",
        json="dry_run, bytes_per_second (null: no limit), before [bytes_per_second], revision, "
        "trace_id (null in a dry run).",
    ),
)
@shared_options("dry_run", "requested_by", "expected_revision", "timeout_seconds")
async def set_(
    session: Session,
    options: MutationOptions,
    rate: Annotated[
        str,
        typer.Argument(
            metavar="RATE",
            help="Bytes per second of each broker, as 65536, 500kB, 50MB or 64MiB; none: no limit.",
        ),
    ],
) -> ExitStatus:
    """Limit the bandwidth of moves, from now on.

    The limit applies to active moves, too. It bounds what each broker may send to, and receive as,
    replicas that are being added. Replicas that are in sync are never slowed down.
    """
    limit = parse_rate(rate)
    async with await options.admin(session) as admin:
        before = await admin.describe_throttle()
        with traced_change(admin) as trace_id:
            throttle = await admin.set_throttle(
                limit, expected_revision=options.expected_revision, dry_run=options.dry_run
            )
    if session.as_json:
        write_json(
            {
                "dry_run": options.dry_run,
                "bytes_per_second": limit,
                "before": {"bytes_per_second": before.bytes_per_second},
                "revision": throttle.revision,
                "trace_id": None if options.dry_run else trace_id,
            }
        )
        return ExitStatus.DONE
    use = "would use" if options.dry_run else "use"
    write_line(f"Moves {use} {rate_text(throttle)}; before: {rate_text(before)}.")
    if options.dry_run:
        write_note("This is a dry run: nothing was changed.")
    return ExitStatus.DONE


def rate_text(throttle: Throttle) -> str:
    rate = throttle.bytes_per_second
    if rate is None:
        return "bandwidth without limit"
    return f"at most {format_size_bytes(rate)} a second from and to each broker"
