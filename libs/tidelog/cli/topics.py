"""`tidelog topics`: create, list, describe, delete and recover topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.exit_status import EPILOG, ExitStatus, TimedOutError
from tidelog.cli.health import HealthCounts, partition_health
from tidelog.cli.output import write_error, write_json, write_line, write_note, write_table
from tidelog.cli.session import BootstrapOption, JsonOption, Session, session_of
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import MAX_INT32, NO_EPOCH, NO_LEADER
from tidelog.wording import plural

if TYPE_CHECKING:
    from tidelog.client import Admin
    from tidelog.client.descriptions import PartitionDescription, TopicDescription

# Without --replication-factor a topic has this many replicas, or one on every broker
# where there are fewer.
USUAL_REPLICATION_FACTOR = 3

app = typer.Typer(
    no_args_is_help=True, epilog=EPILOG, help="Create, list, describe, delete and recover topics."
)

_TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for it."),
]


@app.command(epilog=EPILOG)
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the new topic.")],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", max=MAX_INT32, help="Number of partitions.")
    ] = 1,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            max=MAX_INT32,
            show_default=False,
            help="Replicas of each partition. Default: 3, or the number of brokers if lower.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="A setting of the topic, as retention_ms=86400000; may be repeated.",
        ),
    ] = None,
    timeout: _TimeoutOption = 30.0,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a topic, and wait until its replicas have started.

    Example: tidelog topics create sea --partitions 6 -c min_insync_replicas=2
    """
    session = session_of(context, bootstrap, as_json)
    settings = parse_settings(config or ())
    timeout_ms = round(timeout * 1000)
    session.run(
        lambda: _create(session, name, partitions, replication_factor, settings, timeout_ms)
    )


@app.command("list", epilog=EPILOG)
def list_(
    context: typer.Context,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the cluster's own topics, as __state_changes.")
    ] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """List all topics, and which are unwell.

    Example: tidelog topics list
    """
    session = session_of(context, bootstrap, as_json)
    session.run(lambda: _list(session, internal=internal))


@app.command(epilog=EPILOG)
def describe(
    context: typer.Context,
    name: TopicArgument,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a topic: its settings, and leader, replicas and ISR of each partition.

    Example: tidelog topics describe sea
    """
    session = session_of(context, bootstrap, as_json)
    session.run(lambda: _describe(session, name))


@app.command(epilog=EPILOG)
def delete(
    context: typer.Context,
    name: TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: _TimeoutOption = 30.0,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a topic with all its records. Asks for its name first, on a terminal.

    Example: tidelog topics delete sea --yes
    """
    session = session_of(context, bootstrap, as_json)
    if not yes and not session.can_ask():
        write_error(
            f"topic {name!r} and its records would be deleted for good; say --yes to do it "
            "where nobody can be asked"
        )
        raise typer.Exit(ExitStatus.USAGE)
    session.run(lambda: _delete(session, name, round(timeout * 1000), ask=not yes))


@app.command(epilog=EPILOG)
def recover(
    context: typer.Context,
    name: TopicArgument,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            min=0,
            show_default=False,
            help="Only this one; may be repeated. Default: all without a leader.",
        ),
    ] = None,
    from_live_replicas: Annotated[
        bool,
        typer.Option(
            "--from-live-replicas",
            help="Do not wait for the replicas last known to be in sync; they are lost for good.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: _TimeoutOption = 30.0,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let partitions without a leader be led again, at the price of records.

    The best log that is left leads: what only lost replicas held is gone, also where it
    was acknowledged. Asks first, on a terminal.

    Example: tidelog topics recover sea --partition 3
    """
    session = session_of(context, bootstrap, as_json)
    if not yes and not session.can_ask():
        write_error(
            f"records of topic {name!r} may be lost for good; say --yes to do it where nobody "
            "can be asked"
        )
        raise typer.Exit(ExitStatus.USAGE)
    wanted = sorted(set(partitions or ()))
    session.run(
        lambda: _recover(
            session, name, wanted, round(timeout * 1000), ask=not yes, live=from_live_replicas
        )
    )


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """
    >>> parse_settings(["retention_ms=1000", "segment_bytes = 65536"])
    {'retention_ms': '1000', 'segment_bytes': '65536'}
    """
    parsed: dict[str, str] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key or not value:
            raise typer.BadParameter(
                f"{setting!r} is not KEY=VALUE, as in retention_ms=86400000",
                param_hint="--config",
            )
        if key in parsed:
            raise typer.BadParameter(f"{key} is given twice; once is enough", param_hint="--config")
        parsed[key] = value
    return parsed


async def _create(
    session: Session,
    name: str,
    partitions: int,
    replication_factor: int | None,
    config: dict[str, str],
    timeout_ms: int,
) -> None:
    async with await session.admin() as admin:
        # Asked first: whatever times out from here on is not for want of a cluster.
        brokers = len((await admin.describe_cluster()).brokers)
        factor = replication_factor
        if factor is None:
            factor = max(1, min(USUAL_REPLICATION_FACTOR, brokers))
        try:
            created = await admin.create_topic(name, partitions, factor, config, timeout_ms)
        except TidelogError as error:
            raise _in_doubt(error) from error
    if session.as_json:
        write_json(
            {
                "topic": name,
                "topic_id": created.topic_id,
                "partitions": partitions,
                "replication_factor": factor,
                "config": config,
                "pending_brokers": created.pending_brokers,
                "trace_id": created.trace_id,
            }
        )
    else:
        write_line(
            f"Created topic {name}: {plural(partitions, 'partition')}, replication factor {factor}."
        )
    _note_pending("have not started their replicas", created.pending_brokers)


async def _list(session: Session, *, internal: bool) -> None:
    async with await session.admin() as admin:
        topics = await admin.list_topics(internal=internal)
    if session.as_json:
        write_json([_summary(topic) for topic in topics])
    elif not topics:
        write_note("There are no topics yet; make one with: tidelog topics create NAME")
    else:
        write_table(
            ("topic", "partitions", "replication", "health"),
            [
                (
                    topic.name,
                    len(topic.partitions),
                    topic.replication_factor,
                    str(HealthCounts.of([topic])),
                )
                for topic in topics
            ],
        )


def _summary(topic: TopicDescription) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "replication_factor": topic.replication_factor,
        "config": dict(topic.config),
        **asdict(HealthCounts.of([topic])),
    }


async def _describe(session: Session, name: str) -> None:
    async with await session.admin() as admin:
        topic = await admin.describe_topic(name)
    if session.as_json:
        write_json(_document(topic))
    else:
        _show(topic)


def _document(topic: TopicDescription) -> dict[str, Any]:
    """No leader and no unclean election are null."""
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "replication_factor": topic.replication_factor,
        "config": dict(topic.config),
        "partitions": [
            asdict(partition)
            | {
                "leader": None if partition.leader == NO_LEADER else partition.leader,
                "unclean_leader_epoch": None
                if partition.unclean_leader_epoch == NO_EPOCH
                else partition.unclean_leader_epoch,
                "health": partition_health(partition),
            }
            for partition in topic.partitions
        ],
    }


def _show(topic: TopicDescription) -> None:
    write_line(f"Topic        {topic.name}")
    write_line(f"Id           {topic.topic_id}")
    write_line(
        f"Replication  factor {topic.replication_factor}, "
        f"{plural(len(topic.partitions), 'partition')}"
    )
    settings = ", ".join(f"{key}={value}" for key, value in sorted(topic.config.items()))
    write_line(f"Config       {settings or 'all defaults'}")
    write_line()
    columns = ("partition", "leader", "epoch", "replicas", "ISR", "min ISR", "eligible", "health")
    if any(partition.moving_operation for partition in topic.partitions):
        moves = ("adding", "leaving", "operation")
        rows = [(*_row(p), *_move_row(p)) for p in topic.partitions]
        write_table((*columns, *moves), rows)
    else:
        write_table(columns, [_row(partition) for partition in topic.partitions])


def _row(partition: PartitionDescription) -> tuple[object, ...]:
    return (
        partition.partition,
        "none" if partition.leader == NO_LEADER else str(partition.leader),
        partition.leader_epoch,
        _ids(partition.replicas),
        _ids(partition.isr),
        partition.min_isr,
        _ids(partition.eligible_leader_replicas),
        partition_health(partition),
    )


def _move_row(partition: PartitionDescription) -> tuple[object, ...]:
    return (
        _ids(partition.adding_replicas),
        _ids(partition.leaving_replicas),
        partition.moving_operation or "-",
    )


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "-"


async def _delete(session: Session, name: str, timeout_ms: int, *, ask: bool) -> ExitStatus:
    async with await session.admin() as admin:
        topic = await admin.describe_topic(name)
        if ask and not _confirmed(topic):
            write_note("Nothing was deleted.")
            return ExitStatus.FAILED
        with admin.traced() as trace_id:
            pending = await _delete_that_very_topic(admin, topic, timeout_ms)
    if session.as_json:
        done = {"pending_brokers": pending, "trace_id": trace_id}
        write_json({"topic": name, "topic_id": topic.topic_id, **done})
    else:
        write_line(f"Deleted topic {name}.")
    _note_pending("have not deleted their replicas", pending)
    return ExitStatus.DONE


def _confirmed(topic: TopicDescription) -> bool:
    count = plural(len(topic.partitions), "partition")
    typed = typer.prompt(
        f"Topic {topic.name} ({count}) and all its records will be deleted for good.\n"
        "Type its name to go on",
        default="",
        show_default=False,
        err=True,
    )
    return str(typed).strip() == topic.name


async def _delete_that_very_topic(
    admin: Admin, topic: TopicDescription, timeout_ms: int
) -> tuple[int, ...]:
    """Not one that somebody made under the same name while we asked."""
    try:
        return await admin.delete_topic(topic.name, timeout_ms, topic_id=topic.topic_id)
    except TidelogError as error:
        raise _in_doubt(error) from error


async def _recover(
    session: Session, name: str, wanted: Sequence[int], timeout_ms: int, *, ask: bool, live: bool
) -> ExitStatus:
    async with await session.admin() as admin:
        topic = await admin.describe_topic(name)
        leaderless = [
            p
            for p in topic.partitions
            if p.leader == NO_LEADER and (not wanted or p.partition in wanted)
        ]
        if ask and leaderless and not _consented(topic, leaderless, live=live):
            write_note("Nothing was recovered.")
            return ExitStatus.FAILED
        try:
            with admin.traced() as trace_id:
                recovered = await admin.recover_partitions(
                    name, wanted, timeout_ms, from_live_replicas=live
                )
        except TidelogError as error:
            raise _in_doubt(error) from error
    if session.as_json:
        results = [{"partition": r.partition, "error": _problem(r.error)} for r in recovered]
        done = {"partitions": results, "trace_id": trace_id}
        write_json({"topic": name, "topic_id": topic.topic_id, **done})
    elif not recovered:
        write_line(f"Every partition of topic {name} has a leader.")
    for result in recovered:
        if result.error is not None:
            write_error(str(result.error))
        elif not session.as_json:
            write_line(f"Partition {result.partition} of topic {name} has a leader.")
    waiting = any(result.error is not None for result in recovered)
    return ExitStatus.TIMED_OUT if waiting else ExitStatus.DONE


def _problem(error: TidelogError | None) -> str | None:
    return None if error is None else str(error)


def _consented(
    topic: TopicDescription, leaderless: Sequence[PartitionDescription], *, live: bool
) -> bool:
    warning = (
        f"Of topic {topic.name}, {plural(len(leaderless), 'partition')} "
        f"({_ids([p.partition for p in leaderless])}) without a leader will be led by the best "
        "log that is left.\nRecords that only lost replicas held are gone for good, also where "
        "they were acknowledged."
    )
    if live:
        members = {b for p in leaderless for b in (*p.isr, *p.eligible_leader_replicas)}
        warning += (
            f"\nThe brokers last known to be in sync ({_ids(sorted(members))}) are not waited "
            "for: what they hold and the others do not is cut when they come back."
        )
    write_note(warning)
    return typer.confirm("Go on?", default=False, err=True)


def _in_doubt(error: TidelogError) -> Exception:
    """The cluster was reached before: a missing answer leaves the outcome open."""
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        return TimedOutError(str(error))
    return error


def _note_pending(what: str, pending: Sequence[int]) -> None:
    if pending:
        write_note(f"Brokers {_ids(pending)} {what} yet; they go on by themselves.")
