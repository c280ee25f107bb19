"""`tidelog brokers scrub`: lets brokers check the batches on their disks."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Annotated

import typer

from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.operating.help_epilog import help_epilog
from tidelog.cli.output import timestamp_text, write_json, write_note, write_table
from tidelog.cli.session import Session
from tidelog.inspection.scrub_progress import ScrubProgress

_FIELDS = tuple(field.name for field in fields(ScrubProgress))
SCRUB_EPILOG = help_epilog(
    "tidelog brokers scrub",
    "tidelog brokers scrub 3 --full-rate",
    "tidelog brokers scrub --status --json",
    json=f"a list; of each broker: broker_id, {', '.join(_FIELDS)}. Times 0: never.",
)


@shared_options("timeout_seconds")
async def scrub(
    session: Session,
    options: MutationOptions,
    broker_ids: Annotated[
        list[int] | None, typer.Argument(help="Ids of brokers. Default: all that run.")
    ] = None,
    full_rate: Annotated[
        bool, typer.Option("--full-rate", help="Check without pauses, as fast as the disk reads.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show the progress, and begin no pass.")
    ] = False,
) -> None:
    """Check every batch on the disks of brokers.

    Begins a new pass now. Brokers do this by themselves once in scrub_period_ms. Damage is repaired
    from other replicas; if there are none, explain reports it. The contents of replicas are
    compared, too: DIVERGED counts the offset ranges in which two replicas differ.
    """
    from tidelog.client.scrubbing import scrub_broker, scrubbed_brokers

    if full_rate and status:
        raise typer.BadParameter("give one of --full-rate and --status", param_hint="--full-rate")
    chosen = broker_ids or []
    async with await options.admin(session) as admin:
        brokers = await admin.describe_brokers(chosen)
    found = {}
    for broker in scrubbed_brokers(brokers, chosen):
        found[broker.broker_id] = await scrub_broker(
            broker.address,
            begin=not status,
            full_rate=full_rate,
            timeout_seconds=options.timeout_seconds,
        )
    if session.as_json:
        write_json([{"broker_id": broker_id} | asdict(state) for broker_id, state in found.items()])
        return
    columns = ("broker", "pass", "checked", "last pass ended", "damage found", "diverged")
    write_table(columns, [_row(broker_id, state) for broker_id, state in found.items()])
    if not status:
        write_note("To see the progress: tidelog brokers scrub --status")


def _row(broker_id: int, state: ScrubProgress) -> tuple[object, ...]:
    running = "full rate" if state.full_rate else "running"
    share = f"{100 * state.pass_bytes // max(state.total_bytes, 1)} %"
    return (
        broker_id,
        running if state.running else "none" if state.enabled else "off",
        share if state.running else "-",
        timestamp_text(state.last_pass_ended_ms) if state.last_pass_ended_ms else "never",
        state.damage_found,
        state.diverged_ranges,
    )
