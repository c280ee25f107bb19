"""`tidelog leaders`: changes the leaders of partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.completion import leaders_argument, partitions_argument
from tidelog.cli.exit_status import EPILOG, ExitStatus, status_of_results
from tidelog.cli.operating.beginning import traced_change
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.operating.documents import leader_document
from tidelog.cli.operating.help_epilog import ERROR_FIELDS, help_epilog
from tidelog.cli.operating.plan_view import write_leaders
from tidelog.cli.operating.targets import parse_leaders, parse_selection
from tidelog.cli.output import write_json, write_line, write_note
from tidelog.cli.session import Session

if TYPE_CHECKING:
    from tidelog.admin_messages import LeaderChange
    from tidelog.client import Admin

app = typer.Typer(
    no_args_is_help=True, epilog=EPILOG, help="Elect preferred or chosen replicas as leaders."
)

_JSON = (
    f"dry_run, partitions [topic, partition, leader_before (-1: none), leader, {ERROR_FIELDS}], "
    "trace_id (null in a dry run)."
)


@app.command(
    "elect-preferred",
    epilog=help_epilog(
        "tidelog leaders elect-preferred",
        "tidelog leaders elect-preferred sea bay/3 --dry-run",
        json=_JSON,
    ),
)
@shared_options("dry_run", "requested_by", "timeout_seconds")
async def elect_preferred(
    session: Session,
    options: MutationOptions,
    targets: Annotated[
        list[str] | None, partitions_argument("Partitions to elect leaders for. Default: all.")
    ] = None,
) -> ExitStatus:
    """Elect the preferred replicas as leaders.

    A partition's first replica is its preferred leader. It is elected if it is in sync. Partitions
    that it leads already are left out. Clients follow the new leaders automatically, and no records
    are lost.

    Leadership returns to preferred replicas by itself: every leader_balance_interval_ms
    (5 minutes), for each broker that lacks more than leader_imbalance_percent (10 %) of the
    leaderships that prefer it, unless leader_balance is false.
    """
    selection = parse_selection(targets or [])

    def elect(admin: Admin) -> Awaitable[list[LeaderChange]]:
        return admin.elect_preferred_leaders(selection, options.timeout_ms, dry_run=options.dry_run)

    return await _change(session, options, elect, "Every partition has its preferred leader.")


@app.command(epilog=help_epilog("tidelog leaders move sea/3=2 sea/4=1", json=_JSON))
@shared_options("dry_run", "requested_by", "timeout_seconds")
async def move(
    session: Session,
    options: MutationOptions,
    leaders: Annotated[
        list[str], leaders_argument("The replica to elect as a partition's leader.")
    ],
) -> ExitStatus:
    """Elect chosen replicas as leaders, and make them the preferred ones.

    Each replica must be in sync. Clients follow the new leaders automatically, and no records are
    lost.
    """
    chosen = parse_leaders(leaders)

    def elect(admin: Admin) -> Awaitable[list[LeaderChange]]:
        return admin.move_leaders(chosen, options.timeout_ms, dry_run=options.dry_run)

    return await _change(session, options, elect, "Nothing had to change.")


async def _change(
    session: Session,
    options: MutationOptions,
    elect: Callable[[Admin], Awaitable[list[LeaderChange]]],
    unchanged: str,
) -> ExitStatus:
    async with await options.admin(session) as admin:
        with traced_change(admin) as trace_id:
            changes = await elect(admin)
    if session.as_json:
        partitions = [leader_document(change) for change in changes]
        trace = {"trace_id": None if options.dry_run else trace_id}
        write_json({"dry_run": options.dry_run, "partitions": partitions} | trace)
    elif changes:
        write_leaders(changes)
    else:
        write_line(unchanged)
    if options.dry_run and not session.as_json:
        write_note("This is a dry run: nothing was changed.")
    return status_of_results(change.error for change in changes)
