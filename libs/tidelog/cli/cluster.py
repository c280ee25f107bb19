"""`tidelog cluster`: brokers, controllers, gateways, and counts of unhealthy partitions."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.exit_status import EPILOG, ExitStatus
from tidelog.cli.operating.beginning import traced_change
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.operating.consent import (
    check_can_confirm,
    check_protected_context,
    confirms,
    declined,
)
from tidelog.cli.operating.help_epilog import help_epilog
from tidelog.cli.output import write_field, write_json, write_line, write_note, write_table
from tidelog.cli.partition_health import HealthCounts
from tidelog.cli.session import Session
from tidelog.inspection.unprotected_topics import UNPROTECTED, unprotected_topics
from tidelog.phrases import plural
from tidelog.state_changes.topic import is_internal

if TYPE_CHECKING:
    from tidelog.admin_messages import FeatureLevel
    from tidelog.client.descriptions import ClusterDescription, TopicDescription
    from tidelog.inspection.gateway_reports import AnnouncedGateway

# Width of the names before the table.
_NAME_WIDTH = 12
MAX_LEVEL = 10_000

app = typer.Typer(no_args_is_help=True, epilog=EPILOG, help="Show and upgrade the cluster.")


@app.callback()
def cluster() -> None:
    """Show and upgrade the cluster."""


@app.command(
    epilog=help_epilog(
        "tidelog cluster describe",
        "tidelog cluster describe --json",
        json="cluster_id, controller (null: none is active) [controller_id, address, "
        "controller_epoch], controllers [controller_id, address, started_at_ms, version], brokers "
        "[broker_id, address, rack, broker_epoch, status (running, stopping, gone), version "
        "(empty: unknown), state (a deprecated alias of status, for one release), leaders, "
        "replicas], feature_level (0: unknown), gateways [address, "
        "host, pid, version, started_at_ms, last_heard_ms, state "
        "(alive, silent, stopped), limited_clients [address, limit, value, rejected, last_ms], "
        "pressures [resource, used, limit, since_ms, detail]], "
        "topics, internal_topics, unprotected_topics (their names), and of all topics partitions, "
        "without_leader, below_min_isr, under_replicated.",
    )
)
@shared_options("timeout_seconds")
async def describe(session: Session, options: MutationOptions) -> None:
    """Show the brokers, controllers and gateways, and how many partitions are unhealthy."""
    from tidelog.client.departed_brokers import describe_with_departed_brokers

    async with options.broker_admin(session) as admin:
        described, topics = await describe_with_departed_brokers(admin)
        gateways = await session.gateways(c.address for c in described.controllers)
    if session.as_json:
        write_json(_document(described, topics, gateways))
    else:
        _show(described, topics, gateways)


@app.command(
    epilog=help_epilog(
        "tidelog cluster upgrade --dry-run",
        "tidelog cluster upgrade",
        "tidelog cluster upgrade --to 2 --yes",
        json="dry_run, before, level (the requested one), newest_level (of the active controller), "
        "processes [role, id, address, version (empty: unknown), oldest_level, newest_level], "
        "trace_id (null: nothing was changed).",
    )
)
@shared_options("dry_run", "yes", "requested_by", "timeout_seconds")
async def upgrade(
    session: Session,
    options: MutationOptions,
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="LEVEL",
            min=1,
            max=MAX_LEVEL,
            show_default=False,
            help="The feature level. Default: the newest one of the active controller's release.",
        ),
    ] = None,
) -> ExitStatus:
    """Raise the feature level of the cluster, after all processes run a new release.

    From then on the cluster uses what older releases do not understand. A level is never lowered,
    and afterwards no process of a release without it starts: you cannot go back to that release.
    """
    async with await options.admin(session) as admin:
        known = await admin.describe_feature_level()
        level = known.newest_level if to is None else to
        if options.dry_run and not session.as_json:
            _show_levels(known)
        await admin.raise_feature_level(level, dry_run=True)
        trace_id = None
        if not options.dry_run and level != known.level:
            danger = f"the cluster would have feature level {level}, and never a lower one again"
            check_can_confirm(session, options, danger)
            if options.yes:
                check_protected_context(session, options, danger)
            elif not confirms([f"{danger[0].upper()}{danger[1:]}: no release without it can run."]):
                return declined(session, "The level was not raised.")
            with traced_change(admin) as trace_id:
                await admin.raise_feature_level(level, expected_revision=known.revision)
    if session.as_json:
        asked = {"dry_run": options.dry_run, "before": known.level, "trace_id": trace_id}
        write_json(asdict(known) | asked | {"level": level})
        return ExitStatus.DONE
    write_line(_level_text(known.level, level, dry_run=options.dry_run))
    if options.dry_run:
        write_note("This is a dry run: nothing was changed.")
    return ExitStatus.DONE


def _level_text(before: int, level: int, *, dry_run: bool) -> str:
    if before == level:
        return f"The cluster is at feature level {level}; nothing has to change."
    return (
        f"The cluster {'would be' if dry_run else 'is'} at feature level {level}; before: {before}."
    )


def _show_levels(known: FeatureLevel) -> None:
    """Shows which levels each process supports."""
    write_table(
        ("process", "version", "levels", "address"),
        [
            (
                str(process),
                process.version or "-",
                f"{process.oldest_level}-{process.newest_level}",
                process.address,
            )
            for process in known.processes
        ],
    )
    write_line()


def _releases_text(described: ClusterDescription) -> str:
    """Returns the version of all brokers and controllers, or which have which."""
    from tidelog.inspection.explain.formatting import listed

    found: dict[str, list[str]] = {}
    for broker in described.brokers:
        if broker.broker_epoch:
            found.setdefault(broker.version, []).append(f"broker {broker.broker_id}")
    for controller in described.controllers:
        found.setdefault(controller.version, []).append(f"controller {controller.controller_id}")
    if len(found) == 1:
        return next(iter(found)) or "unknown"
    each = sorted(found.items())
    return "; ".join(f"{version or 'unknown'}: {listed(names)}" for version, names in each)


def _leads(topics: list[TopicDescription], broker_id: int) -> int:
    return sum(p.leader == broker_id for topic in topics for p in topic.partitions)


def _holds(topics: list[TopicDescription], broker_id: int) -> int:
    return sum(broker_id in p.replicas for topic in topics for p in topic.partitions)


def _gateways_text(gateways: list[AnnouncedGateway]) -> str:
    from tidelog.inspection.explain.formatting import listed, span
    from tidelog.inspection.gateway_reports import SILENT, state_of

    texts = []
    for gateway in gateways:
        state = state_of(gateway)
        silent_for = f" for {span(gateway.last_heard_ms)}" if state == SILENT else ""
        short = listed(f"{p.resource} ({p.used:,} of {p.limit:,})" for p in gateway.pressures)
        short_of = f", short of {short}" if gateway.pressures else ""
        texts.append(f"{gateway.address} on {gateway.host} is {state}{silent_for}{short_of}")
    return listed(texts)


def _unprotected_text(topics: list[TopicDescription]) -> str:
    from tidelog.inspection.explain.formatting import listed

    names = unprotected_topics(topics)
    return f"; {len(names):,} {UNPROTECTED} (a single replica): {listed(names)}" if names else ""


def _document(
    described: ClusterDescription,
    topics: list[TopicDescription],
    gateways: list[AnnouncedGateway],
) -> dict[str, object]:
    from tidelog.inspection.gateway_reports import state_of

    document = asdict(described)
    document["gateways"] = [
        {name: value for name, value in asdict(gateway).items() if name != "is_stopped"}
        | {"state": state_of(gateway)}
        for gateway in gateways
    ]
    for broker in document["brokers"]:
        broker["state"] = broker["status"]
        broker["leaders"] = _leads(topics, broker["broker_id"])
        broker["replicas"] = _holds(topics, broker["broker_id"])
    internal = sum(is_internal(topic.name) for topic in topics)
    counts = {"topics": len(topics) - internal, "internal_topics": internal}
    document["unprotected_topics"] = unprotected_topics(topics)
    return document | counts | asdict(HealthCounts.of(topics))


def _show(
    described: ClusterDescription,
    topics: list[TopicDescription],
    gateways: list[AnnouncedGateway],
) -> None:
    controller = described.controller
    active = "none is active"
    if controller is not None:
        active = (
            f"{controller.controller_id} at {controller.address}, "
            f"epoch {controller.controller_epoch}"
        )
    standby = ", ".join(f"{c.controller_id} at {c.address}" for c in described.standby)
    counts = HealthCounts.of(topics)
    internal = sum(is_internal(topic.name) for topic in topics)
    beside = f" and {internal:,} internal" if internal else ""
    for name, text in (
        ("Cluster", described.cluster_id),
        ("Controller", active),
        ("Standby", standby or "none"),
        ("Gateways", _gateways_text(gateways)),
        ("Releases", _releases_text(described) or "unknown"),
        ("Level", f"{described.feature_level or 'unknown'}"),
        (
            "Topics",
            f"{len(topics) - internal:,}{beside} with "
            f"{plural(counts.partitions, 'partition')}: {counts}{_unprotected_text(topics)}",
        ),
    ):
        write_field(name, text, _NAME_WIDTH)
    write_line()
    write_table(
        ("broker", "status", "address", "rack", "leaders", "replicas", "broker epoch"),
        [
            (
                broker.broker_id,
                broker.status,
                broker.address or "-",
                broker.rack or "-",
                _leads(topics, broker.broker_id),
                _holds(topics, broker.broker_id),
                broker.broker_epoch or "-",
            )
            for broker in described.brokers
        ],
    )
