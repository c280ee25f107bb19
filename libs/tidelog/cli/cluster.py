"""`tidelog cluster`: brokers, controllers, gateways, and counts of unhealthy partitions."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tidelog.cli.exit_status import EPILOG
from tidelog.cli.health import HealthCounts
from tidelog.cli.operating.help_epilog import help_epilog
from tidelog.cli.operating.options import MutationOptions, shared_options
from tidelog.cli.output import write_json, write_line, write_table
from tidelog.cli.session import Session
from tidelog.phrases import plural
from tidelog.state_changes.topic import is_internal

if TYPE_CHECKING:
    from tidelog.client.descriptions import ClusterDescription, TopicDescription
    from tidelog.inspection.gateway_reports import AnnouncedGateway

app = typer.Typer(no_args_is_help=True, epilog=EPILOG, help="Show the cluster.")


@app.callback()
def cluster() -> None:
    """Show the cluster."""


@app.command(
    epilog=help_epilog(
        "tidelog cluster describe",
        "tidelog cluster describe --json",
        json="cluster_id, controller (null: none is active) [controller_id, address, "
        "controller_epoch], controllers [controller_id, address, started_at_ms], brokers "
        "[broker_id, address, rack, broker_epoch, status (running, stopping, gone), state (a "
        "deprecated alias of status, for one release), leaders, replicas], gateways [address, "
        "host, pid, version, started_at_ms, last_heard_ms, state "
        "(alive, silent, stopped), limited_clients [address, limit, value, rejected, last_ms], "
        "pressures [resource, used, limit, since_ms, detail]], "
        "topics, internal_topics, and of all of them partitions, "
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
    return document | counts | asdict(HealthCounts.of(topics))


def _show(
    described: ClusterDescription,
    topics: list[TopicDescription],
    gateways: list[AnnouncedGateway],
) -> None:
    write_line(f"Cluster     {described.cluster_id}")
    controller = described.controller
    if controller is None:
        write_line("Controller  none is active")
    else:
        write_line(
            f"Controller  {controller.controller_id} at {controller.address}, "
            f"epoch {controller.controller_epoch}"
        )
    standby = ", ".join(f"{c.controller_id} at {c.address}" for c in described.standby)
    write_line(f"Standby     {standby or 'none'}")
    write_line(f"Gateways    {_gateways_text(gateways)}")
    counts = HealthCounts.of(topics)
    internal = sum(is_internal(topic.name) for topic in topics)
    beside = f" and {internal:,} internal" if internal else ""
    write_line(
        f"Topics      {len(topics) - internal:,}{beside} with "
        f"{plural(counts.partitions, 'partition')}: {counts}"
    )
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
