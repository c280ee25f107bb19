"""`tidelog cluster`: the brokers, the controllers, and what is wrong."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tidelog.cli.exit_status import EPILOG
from tidelog.cli.health import HealthCounts
from tidelog.cli.operating.manner import USUAL_TIMEOUT_SECONDS, Manner, TimeoutOption
from tidelog.cli.operating.manual import manual
from tidelog.cli.output import write_json, write_line, write_table
from tidelog.cli.session import BootstrapOption, JsonOption, Session, session_of
from tidelog.wording import plural

if TYPE_CHECKING:
    from tidelog.client.descriptions import ClusterDescription, TopicDescription

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
        "[broker_id, address, rack, broker_epoch, state, leaders, replicas], topics, partitions, "
        "without_leader, below_min_isr, under_replicated.",
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
        topics = await admin.list_topics()
    if session.as_json:
        write_json(_document(described, topics))
    else:
        _show(described, topics)


def _leads(topics: list[TopicDescription], broker_id: int) -> int:
    return sum(p.leader == broker_id for topic in topics for p in topic.partitions)


def _holds(topics: list[TopicDescription], broker_id: int) -> int:
    return sum(broker_id in p.replicas for topic in topics for p in topic.partitions)


def _document(described: ClusterDescription, topics: list[TopicDescription]) -> dict[str, object]:
    document = asdict(described)
    for broker in document["brokers"]:
        broker["leaders"] = _leads(topics, broker["broker_id"])
        broker["replicas"] = _holds(topics, broker["broker_id"])
    return document | {"topics": len(topics)} | asdict(HealthCounts.of(topics))


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
    write_line(
        f"Topics      {len(topics):,} with {plural(counts.partitions, 'partition')}: {counts}"
    )
    write_line()
    write_table(
        ("broker", "address", "rack", "state", "leaders", "replicas", "broker epoch"),
        [
            (
                broker.broker_id,
                broker.address,
                broker.rack or "-",
                broker.state,
                _leads(topics, broker.broker_id),
                _holds(topics, broker.broker_id),
                broker.broker_epoch,
            )
            for broker in described.brokers
        ],
    )
