"""`tidelog topics list`: all topics with their health, sizes and rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.exit_status import UsageError
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.output import write_json, write_note, write_table
from tidelog.cli.partition_health import SOUND, HealthCounts
from tidelog.cli.session import Session, seconds_option
from tidelog.cli.topics.views import topic_head
from tidelog.inspection.unprotected_topics import factor_text
from tidelog.units import size_text

if TYPE_CHECKING:
    from tidelog.client.descriptions import TopicDescription
    from tidelog.client.service_states import ReportedStates
    from tidelog.inspection.topic_sizes import TopicRate, TopicSize

# Brokers that have not described their replicas by then are named, and their figures are unknown.
SIZES_TIMEOUT_MS = 5_000
MAX_RATES_SECONDS = 60.0
# Shown for a figure that no broker reports, and before one that lacks a part.
UNKNOWN = "unknown"
AT_LEAST = "≥ "

LIST_JSON = (
    "a list; of each: topic, topic_id, replication_factor, unprotected (it has a single replica), "
    "config (what was set), partitions (how many), without_leader, below_min_isr, "
    "under_replicated; unless --brief also approximate_records (offsets from log start to log end "
    "of the leaders), leader_bytes, total_bytes (null: no broker reports it), partitions_unknown "
    "and replicas_unknown (what these lack); with --rates also records_per_second, "
    "bytes_per_second (null: not measured) and partitions_unmeasured."
)


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """Figures by topic id, and the brokers that did not report theirs. None: not requested."""

    sizes: Mapping[str, TopicSize] | None = None
    rates: Mapping[str, TopicRate] | None = None
    silent: Sequence[str] = field(default_factory=tuple)


@shared_options("timeout_seconds")
async def list_(
    session: Session,
    options: MutationOptions,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the cluster's own topics, as __state_changes.")
    ] = False,
    contains: Annotated[
        str,
        typer.Option(
            "--contains", metavar="TEXT", show_default=False, help="Only names that contain this."
        ),
    ] = "",
    unwell: Annotated[
        bool, typer.Option("--unwell", help="Only topics with an unhealthy partition.")
    ] = False,
    rates: Annotated[
        float | None,
        seconds_option(
            "--rates",
            "Also what is written per second, measured over this time.",
            MAX_RATES_SECONDS,
        ),
    ] = None,
    brief: Annotated[
        bool, typer.Option("--brief", help="Without sizes: ask one broker, not all of them.")
    ] = False,
) -> None:
    """List all topics with their health and size.

    Sizes come from all brokers: records (offsets from log start to log end, which are fewer records
    if offsets were skipped), the bytes of the leaders' logs, and those of all replicas together.
    What no broker reports is unknown; ≥ marks a sum of which some broker did not report its part.
    Topics with a single replica are marked as unprotected.
    """
    if brief and rates is not None:
        raise UsageError("--brief asks no broker for sizes, and --rates does; give one of them")
    async with options.broker_admin(session) as admin:
        every = await admin.list_topics(internal=internal)
    topics = [
        topic
        for topic in every
        if contains in topic.name and not (unwell and str(HealthCounts.of([topic])) == SOUND)
    ]
    figures = TopicFigures()
    if topics and not brief:
        timeout_ms = min(options.timeout_ms, SIZES_TIMEOUT_MS)
        figures = await _figures(session, topics, rates, timeout_ms)
    if session.as_json:
        write_json([_document(topic, figures) for topic in topics])
    elif every and not topics:
        write_note("There are no such topics.")
    elif not topics:
        write_note("There are no topics yet; create one with: tidelog topics create NAME")
    else:
        _show(topics, figures)
    for problem in figures.silent:
        write_note(f"{problem}; figures lack its replicas.")


async def _figures(
    session: Session,
    topics: Sequence[TopicDescription],
    rates_seconds: float | None,
    timeout_ms: int,
) -> TopicFigures:
    """Each broker describes its replicas once, and with rates twice."""
    import asyncio

    from tidelog.inspection.state_reports import StateRequest
    from tidelog.inspection.topic_sizes import topic_rates, topic_sizes

    request = StateRequest(topics[0].name if len(topics) == 1 else "")
    reported = await session.service_states(request, timeout_ms)
    rates = None
    if rates_seconds is not None:
        await asyncio.sleep(rates_seconds)
        earlier, reported = reported, await session.service_states(request, timeout_ms)
        rates = await asyncio.to_thread(topic_rates, topics, earlier.states, reported.states)
    sizes = await asyncio.to_thread(topic_sizes, topics, reported.states)
    return TopicFigures(sizes, rates, _silent_brokers(topics, reported))


def _silent_brokers(
    topics: Sequence[TopicDescription], reported: ReportedStates
) -> tuple[str, ...]:
    """Returns a sentence, without its end, for each broker that holds replicas and has not reported
    them."""
    holding = {b for topic in topics for p in topic.partitions for b in p.replicas}
    answered = {state.id for state in reported.states if state.broker is not None}
    problems = {s.id: f"{s} {s.problem}" for s in reported.silent if s.role == "broker"}
    return tuple(
        problems.get(broker_id, f"broker-{broker_id} is not registered")
        for broker_id in sorted(holding - answered)
    )


def _document(topic: TopicDescription, figures: TopicFigures) -> dict[str, Any]:
    document = topic_head(topic) | asdict(HealthCounts.of([topic]))
    for figure in (figures.sizes, figures.rates):
        if figure is not None:
            document |= asdict(figure[topic.topic_id])
    return document


def _show(topics: Sequence[TopicDescription], figures: TopicFigures) -> None:
    columns = ["topic", "partitions", "replication"]
    columns += ["≈ records", "size", "all replicas"] if figures.sizes is not None else []
    columns += ["records/s", "bytes/s"] if figures.rates is not None else []
    rows = []
    for topic in topics:
        row: list[object] = [topic.name, len(topic.partitions)]
        row.append(factor_text(topic.replication_factor))
        if figures.sizes is not None:
            row += _size_cells(figures.sizes[topic.topic_id])
        if figures.rates is not None:
            row += _rate_cells(figures.rates[topic.topic_id])
        rows.append((*row, str(HealthCounts.of([topic]))))
    write_table((*columns, "health"), rows)


def _size_cells(size: TopicSize) -> tuple[str, str, str]:
    records = size.approximate_records
    return (
        _cell(None if records is None else f"{records:,}", size.partitions_unknown),
        _cell(_bytes_text(size.leader_bytes), size.partitions_unknown),
        _cell(_bytes_text(size.total_bytes), size.replicas_unknown),
    )


def _rate_cells(rate: TopicRate) -> tuple[str, str]:
    records, size = rate.records_per_second, rate.bytes_per_second
    return (
        _cell(None if records is None else f"{records:,.0f}", rate.partitions_unmeasured),
        _cell(None if size is None else f"{size_text(size)}/s", rate.partitions_unmeasured),
    )


def _bytes_text(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else size_text(size_bytes)


def _cell(text: str | None, missing: int) -> str:
    """
    >>> _cell("12", 0), _cell("12", 1), _cell(None, 1)
    ('12', '≥ 12', 'unknown')
    """
    if text is None:
        return UNKNOWN
    return f"{AT_LEAST}{text}" if missing else text
