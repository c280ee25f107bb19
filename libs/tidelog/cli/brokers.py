"""`tidelog brokers`: lists brokers, and adds, removes, drains and checks them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.completion import BrokerArgument, BrokersArgument
from tidelog.cli.exit_status import EPILOG, ExitStatus, status_of_results
from tidelog.cli.operating.beginning import run_operation, traced_change
from tidelog.cli.operating.command_options import MutationOptions, operation_options, shared_options
from tidelog.cli.operating.documents import leader_document
from tidelog.cli.operating.help_epilog import BEGUN_FIELDS, ERROR_FIELDS, help_epilog
from tidelog.cli.operating.plan_view import write_leaders
from tidelog.cli.output import (
    ids_text,
    timestamp_text,
    write_field,
    write_json,
    write_line,
    write_note,
    write_table,
)
from tidelog.cli.restart_wait import DEFAULT_WAIT_SECONDS, wait_for_restart
from tidelog.cli.scrub import SCRUB_EPILOG, scrub
from tidelog.cli.session import Session, seconds_option
from tidelog.phrases import PREFERRED_AT_ONCE, PREFERRED_RETURN, plural

if TYPE_CHECKING:
    from tidelog.admin_messages import BrokerDetails, RestartCheck
    from tidelog.client.descriptions import PartitionDescription, TopicDescription

# Width of the names before the table of replicas.
_NAME_WIDTH = 10

app = typer.Typer(no_args_is_help=True, epilog=EPILOG)

_DETAILS = (
    "broker_id, status (running, stopping, gone), address, rack, broker_epoch (0: it is gone), "
    "maintenance, removed, not_added, replicas, leaders, preferred_leaders, out_of_sync, moves_in, "
    "moves_out, gone_at_ms (0: it is not gone, or the time is not known)"
)
_LEADERS = f"[topic, partition, leader_before (-1: none), leader, {ERROR_FIELDS}]"


@app.callback()
def brokers() -> None:
    """Add, remove, drain and check brokers.

    To grow: start a broker, and move replicas to it with add. To shrink: move everything off a
    broker with remove, and stop it when that is done. To restart a broker: check with check-restart
    that it is safe; maintenance moves its leaders away beforehand.
    """


@app.command(
    "list",
    epilog=help_epilog("tidelog brokers list", json=f"a list; of each: {_DETAILS}."),
)
@shared_options("timeout_seconds")
async def list_(session: Session, options: MutationOptions) -> None:
    """List all brokers.

    Lists brokers that are registered, hold replicas, are in maintenance or were removed.
    """
    async with await options.admin(session) as admin:
        brokers = await admin.describe_brokers()
    if session.as_json:
        write_json([asdict(broker) for broker in brokers])
        return
    columns = ("broker", "status", "address", "rack", "replicas", "leaders", "preferred")
    write_table(
        (*columns, "out of sync", "moves in", "moves out"),
        [
            (
                broker.broker_id,
                status_text(broker),
                broker.address or "-",
                broker.rack or "-",
                broker.replicas,
                broker.leaders,
                broker.preferred_leaders,
                broker.out_of_sync,
                broker.moves_in,
                broker.moves_out,
            )
            for broker in brokers
        ],
    )


@app.command(
    epilog=help_epilog(
        "tidelog brokers describe 3",
        json=f"{_DETAILS}, partitions [topic, partition, role (leader, follower), in_sync, "
        "move (null, adding, leaving)].",
    )
)
@shared_options("timeout_seconds")
async def describe(session: Session, options: MutationOptions, broker_id: BrokerArgument) -> None:
    """Show a broker and the replicas that it holds."""
    async with await options.admin(session) as admin:
        (broker,) = await admin.describe_brokers([broker_id])
        topics = await admin.list_topics(internal=True)
    held = list(_held(topics, broker_id))
    if session.as_json:
        write_json(asdict(broker) | {"partitions": held})
        return
    gone = f" since {timestamp_text(broker.gone_at_ms)}" if broker.gone_at_ms else ""
    write_line(f"Broker    {broker_id}, {status_text(broker)}{gone}")
    write_field("Address", f"{broker.address or '-'}, rack {broker.rack or '-'}", _NAME_WIDTH)
    write_line(f"Epoch     {broker.broker_epoch or '-'}")
    held_text = (
        f"{plural(broker.replicas, 'replica')}, {broker.out_of_sync:,} out of sync; "
        f"{broker.moves_in:,} moving in, {broker.moves_out:,} moving out"
    )
    write_field("Holds", held_text, _NAME_WIDTH)
    write_line(
        f"Leads     {plural(broker.leaders, 'partition')}; preferred by "
        f"{broker.preferred_leaders:,}"
    )
    if held:
        write_line()
        rows = [
            (
                f"{replica['topic']}/{replica['partition']}",
                replica["role"],
                "yes" if replica["in_sync"] else "no",
                replica["move"] or "-",
            )
            for replica in held
        ]
        write_table(("partition", "role", "in sync", "move"), rows)


app.command("scrub", epilog=SCRUB_EPILOG)(scrub)


@app.command(
    epilog=help_epilog(
        "tidelog brokers add 4 5 --dry-run",
        "tidelog brokers add 4 5 --operation-id grow --yes --watch",
        json=BEGUN_FIELDS,
    )
)
@operation_options
async def add(
    session: Session, options: MutationOptions, broker_ids: BrokersArgument
) -> ExitStatus:
    """Give brokers their share of the replicas.

    Moves as few replicas as possible that balance replicas and leaders. A broker that was only
    started gets no replicas of existing partitions until it is added. A broker that was removed
    receives replicas again after it is added. Shows the plan and asks for confirmation.
    """
    return await run_operation(
        session,
        options,
        lambda admin: partial(admin.add_brokers, broker_ids),
        danger=f"partitions would be moved to {_named(broker_ids)}",
    )


@app.command(
    epilog=help_epilog(
        "tidelog brokers remove 4 --dry-run",
        "tidelog brokers remove 4 --operation-id shrink --yes --watch",
        json=BEGUN_FIELDS,
    )
)
@operation_options
async def remove(
    session: Session, options: MutationOptions, broker_ids: BrokersArgument
) -> ExitStatus:
    """Move everything off brokers, including dead ones.

    The brokers get no new replicas until they are added again. When the operation is done, they may
    be stopped for good. Replicas of a dead broker are copied to other brokers from the remaining
    replicas. Rejected if the other brokers could not keep a topic's replication factor. Shows the
    plan and asks for confirmation.
    """
    return await run_operation(
        session,
        options,
        lambda admin: partial(admin.remove_brokers, broker_ids),
        danger=f"everything would be moved off {_named(broker_ids)}",
    )


@app.command(
    epilog=help_epilog(
        "tidelog brokers maintenance 3 --dry-run",
        "tidelog brokers maintenance 3",
        "tidelog brokers maintenance 3 --off",
        json=f"dry_run, broker_ids, maintenance, leaders {_LEADERS}, leaders_kept, trace_id "
        "(null in a dry run).",
    )
)
@shared_options("dry_run", "requested_by", "timeout_seconds")
async def maintenance(
    session: Session,
    options: MutationOptions,
    broker_ids: BrokersArgument,
    on: Annotated[bool, typer.Option("--on/--off", help="Begin or end maintenance.")] = True,
) -> ExitStatus:
    """Begin or end maintenance of brokers: move their leaders to other brokers.

    A broker in maintenance keeps its replicas and leads only what no other replica can lead.
    Clients follow the new leaders automatically.

    Leadership returns to preferred replicas by itself: every leader_balance_interval_ms
    (5 minutes), for each broker that lacks more than leader_imbalance_percent (10 %) of the
    leaderships that prefer it, unless leader_balance is false. After --off, leaders
    elect-preferred does it at once.
    """
    async with await options.admin(session) as admin:
        with traced_change(admin) as trace_id:
            changes, kept = await admin.set_maintenance(
                broker_ids, options.timeout_ms, maintenance=on, dry_run=options.dry_run
            )
    if session.as_json:
        write_json(
            {
                "dry_run": options.dry_run,
                "broker_ids": broker_ids,
                "maintenance": on,
                "leaders": [leader_document(change) for change in changes],
                "leaders_kept": kept,
                "trace_id": None if options.dry_run else trace_id,
            }
        )
    else:
        _show_maintenance(options, broker_ids, len(changes), kept, on=on)
        if changes:
            write_leaders(changes)
    return status_of_results(change.error for change in changes)


@app.command(
    "check-restart",
    epilog=help_epilog(
        "tidelog brokers check-restart 3 && systemctl restart tidelog-broker@3",
        "tidelog brokers check-restart 3 --wait --wait-timeout 900",
        json="broker_id, safe, unavailable, under_min_isr, last_replica, leader_moves, findings "
        "[topic, partition, effect (unavailable, under_min_isr, last_replica, leader_moves), "
        "reason].",
    ),
)
@shared_options("timeout_seconds")
async def check_restart(
    session: Session,
    options: MutationOptions,
    broker_id: BrokerArgument,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="First wait until all other brokers run and are in sync."),
    ] = False,
    wait_seconds: Annotated[
        float,
        seconds_option(
            "--wait-timeout",
            "How long --wait waits; then exit status 5.",
            default=DEFAULT_WAIT_SECONDS,
        ),
    ] = DEFAULT_WAIT_SECONDS,
) -> ExitStatus:
    """Report what stopping a broker now would do. Exit status 0: it can be stopped.

    It cannot be stopped if a partition would become unavailable, or would fall below its min ISR,
    so that writes with acks=all would be rejected until the broker is back. With --wait, exit
    status 1 means that no further wait helps: a topic has too few replicas.
    """
    async with await options.admin(session) as admin:
        if wait:
            check = await wait_for_restart(admin, broker_id, wait_seconds)
        else:
            check = await admin.check_restart(broker_id)
    if session.as_json:
        write_json({"broker_id": broker_id} | asdict(check))
    else:
        write_line(_verdict(broker_id, check))
        if check.findings:
            write_line()
            rows = [
                (f"{found.topic}/{found.partition}", found.effect.replace("_", " "), found.reason)
                for found in check.findings
            ]
            write_table(("partition", "effect", "reason"), rows)
    return ExitStatus.DONE if check.safe else ExitStatus.FAILED


def _named(broker_ids: list[int]) -> str:
    return f"{'broker' if len(broker_ids) == 1 else 'brokers'} {ids_text(broker_ids)}"


def status_text(broker: BrokerDetails) -> str:
    marks = (
        ("maintenance", broker.maintenance),
        ("removed", broker.removed),
        ("not added", broker.not_added),
    )
    return ", ".join((broker.status, *(mark for mark, is_marked in marks if is_marked)))


def _held(topics: list[TopicDescription], broker_id: int) -> Iterator[dict[str, Any]]:
    for topic in topics:
        for partition in topic.partitions:
            if broker_id in partition.replicas:
                yield {
                    "topic": topic.name,
                    "partition": partition.partition,
                    "role": "leader" if partition.leader == broker_id else "follower",
                    "in_sync": broker_id in partition.isr,
                    "move": _move_of(partition, broker_id),
                }


def _move_of(partition: PartitionDescription, broker_id: int) -> str | None:
    if broker_id in partition.adding_replicas:
        return "adding"
    return "leaving" if broker_id in partition.leaving_replicas else None


def _show_maintenance(
    options: MutationOptions, broker_ids: list[int], moved: int, kept: int, *, on: bool
) -> None:
    are = "would be" if options.dry_run else ("is" if len(broker_ids) == 1 else "are")
    what = _named(broker_ids).capitalize()
    if on:
        write_line(
            f"{what} {are} in maintenance: {plural(moved, 'partition')} led by others, "
            f"{kept:,} kept because no other replica can lead them."
        )
    else:
        write_line(
            f"{what} {are} out of maintenance. {PREFERRED_RETURN} At once: {PREFERRED_AT_ONCE}"
        )
    if options.dry_run:
        write_note("This is a dry run: nothing was changed.")


def _verdict(broker_id: int, check: RestartCheck) -> str:
    counts = [
        f"{count:,} {what}"
        for count, what in (
            (check.unavailable, "would become unavailable"),
            (check.under_min_isr, "would fall below min ISR"),
            (check.last_replica, "would be left with one replica in sync"),
            (check.leader_moves, "would get another leader"),
        )
        if count
    ]
    can = "can be stopped now" if check.safe else "must not be stopped now"
    of_partitions = f" Of its partitions, {', '.join(counts)}." if counts else ""
    return f"Broker {broker_id} {can}.{of_partitions}"
