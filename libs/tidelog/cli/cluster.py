"""`tidelog cluster`: the brokers, the controllers, and what is wrong."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from tidelog.cli.exit_status import EPILOG
from tidelog.cli.health import HealthCounts
from tidelog.cli.operating.manner import USUAL_TIMEOUT_SECONDS, Manner, TimeoutOption
from tidelog.cli.operating.manual import manual
from tidelog.cli.output import write_json, write_line, write_table
from tidelog.cli.session import BootstrapOption, JsonOption, Session, session_of
from tidelog.state_changes.topic import is_internal
from tidelog.wording import plural

if TYPE_CHECKING:
    from tidelog.client.descriptions import (
        BrokerDescription,
        ClusterDescription,
        TopicDescription,
    )

# The word of every view for a broker whose registration has ended.
GONE = "gone"

app = typer.Typer(no_args_is_help=True, epilog=EPILOG, help="The cluster as a whole.")


@app.callback()
def cluster() -> None:
    """The cluster as a whole."""


@app.command(
    epilog=manual(
        "tidelog cluster describe",
        "tidelog cluster describe --json",
        json="cluster_id, controller (null: none is active) [controller_id, address, "
        "controller_epoch], controllers [controller_id, address, started_at_ms], brokers "
        "[broker_id, address, rack, broker_epoch, state (running, stopping, gone), leaders, "
        "replicas], topics, internal_topics, and of all of them partitions, without_leader, "
        "below_min_isr, under_replicated.",
    )
)
def describe(
    context: typer.Context,
    timeout: TimeoutOption = USUAL_TIMEOUT_SECONDS,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the brokers, the controllers, and how many partitions are unwell."""
    session = session_of(context, bootstrap, as_json)
    session.run(lambda: _describe(session, Manner(timeout_seconds=timeout)))


async def _describe(session: Session, manner: Manner) -> None:
    async with manner.asking(session) as admin:
        described = await admin.describe_cluster()
        topics = await admin.list_topics(internal=True)
    described = replace(described, brokers=(*described.brokers, *_gone(described, topics)))
    if session.as_json:
        write_json(_document(described, topics))
    else:
        _show(described, topics)


def _gone(described: ClusterDescription, topics: list[TopicDescription]) -> list[BrokerDescription]:
    """Brokers that hold replicas and are not registered, as `brokers list` shows them."""
    from tidelog.client.descriptions import BrokerDescription

    holding = {b for topic in topics for p in topic.partitions for b in p.replicas}
    gone = sorted(holding - {broker.broker_id for broker in described.brokers})
    return [BrokerDescription(broker_id, "", "", 0, GONE) for broker_id in gone]


def _leads(topics: list[TopicDescription], broker_id: int) -> int:
    return sum(p.leader == broker_id for topic in topics for p in topic.partitions)


def _holds(topics: list[TopicDescription], broker_id: int) -> int:
    return sum(broker_id in p.replicas for topic in topics for p in topic.partitions)


def _document(described: ClusterDescription, topics: list[TopicDescription]) -> dict[str, object]:
    document = asdict(described)
    for broker in document["brokers"]:
        broker["leaders"] = _leads(topics, broker["broker_id"])
        broker["replicas"] = _holds(topics, broker["broker_id"])
    internal = sum(is_internal(topic.name) for topic in topics)
    counts = {"topics": len(topics) - internal, "internal_topics": internal}
    return document | counts | asdict(HealthCounts.of(topics))


def _show(described: ClusterDescription, topics: list[TopicDescription]) -> None:
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
                broker.state,
                broker.address or "-",
                broker.rack or "-",
                _leads(topics, broker.broker_id),
                _holds(topics, broker.broker_id),
                broker.broker_epoch or "-",
            )
            for broker in described.brokers
        ],
    )
