"""The logs of a cluster and samples of their values, before a job starts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidelog.client.sync import SyncConsumer
from tidelog.errors import ErrorCode, InvalidBatchError, TidelogError
from tidelog.model import TopicPartition
from tidelog.spark.cluster_lookups import new_lookups
from tidelog.spark.data_loss import ClusterNow
from tidelog.spark.options import TopicChoice
from tidelog.spark.stream_offsets import TopicOffsets
from tidelog_pipeline.archive.core.spans import LogId, Span

LogsNow = Mapping[LogId, Span]
# Number of values that are checked against their schema before a task runs.
SAMPLES = 100
# How often to poll leaders that are slow to answer: without samples, no value is checked against
# the schema.
_SAMPLE_POLLS, _SAMPLE_POLL_MS = 30, 1_000


def logs_now(bootstrap: str, topics: Collection[str], *, must_exist: bool) -> LogsNow:
    """Returns the offsets from each log's first record to its last committed one.

    Raises `TidelogError`.
    """
    if not topics:
        return {}
    known = {} if must_exist else {name: TopicOffsets("", 0, {}) for name in topics}
    choice = TopicChoice(tuple(sorted(topics)))
    return _logs(bootstrap, choice, known)


def check_same_topics(bootstrap: str, logs: Iterable[LogId]) -> None:
    """Checks that what was read of these logs is of them.

    Rows have no topic id, and a read names its topics. A topic that was created again would be
    archived as the former one. Ids are never used twice, so a check after the read is enough,
    except for a topic that was created again and deleted again within one read.

    If no topic has the name now, this is no error: nothing else has the rows any more. Only
    leaders of these logs are queried, because other partitions may have none.

    Raises `TidelogError`.
    """
    listed = sorted(logs)
    now = _assigned_now(bootstrap, listed)
    for log in listed:
        if log.topic in now and now[log.topic].topic_id != log.topic_id:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{log} (topic id {log.topic_id}) was deleted and created again while it was read; "
                "what was read last is not archived; run this again",
            )


def logs_now_of(bootstrap: str, logs: Collection[LogId]) -> LogsNow:
    """As `logs_now`, without other partitions of these topics. Missing logs are left out."""
    return _spans(_assigned_now(bootstrap, logs))


def _assigned_now(bootstrap: str, logs: Collection[LogId]) -> ClusterNow:
    """Returns the topics of these logs that exist, with these partitions only."""
    if not logs:
        return {}
    partitions: dict[str, list[int]] = {}
    for log in logs:
        partitions.setdefault(log.topic, []).append(log.partition)
    choice = TopicChoice(assigned={name: tuple(numbers) for name, numbers in partitions.items()})
    known = {name: TopicOffsets("", 0, {}) for name in partitions}
    with new_lookups(bootstrap) as lookups:
        return lookups.ask(lambda one: one.now(choice, known, must_exist=False))


def matching_logs(bootstrap: str, pattern: str) -> LogsNow:
    return _logs(bootstrap, TopicChoice(pattern=pattern), {})


def _logs(bootstrap: str, choice: TopicChoice, known: Mapping[str, TopicOffsets]) -> LogsNow:
    with new_lookups(bootstrap) as lookups:
        return _spans(lookups.ask(lambda one: one.now(choice, known)))


def _spans(now: ClusterNow) -> LogsNow:
    return {
        LogId(topic, topic_logs.topic_id, partition): Span(at.start, at.end)
        for topic, topic_logs in now.items()
        for partition, at in topic_logs.partitions.items()
    }


def sample_values(bootstrap: str, ranges: Mapping[LogId, Span]) -> list[tuple[str, bytes]]:
    """Returns values with their positions."""
    requested = {log: span for log, span in ranges.items() if span.size}
    if not requested:
        return []
    found: list[tuple[str, bytes]] = []
    # The job itself, which reads all records, decides whether damaged records are errors.
    with SyncConsumer(bootstrap, on_damage="skip") as consumer:
        consumer.assign([TopicPartition(log.topic, log.partition) for log in requested])
        for log, span in requested.items():
            consumer.seek((log.topic, log.partition), span.first)
        for _ in range(_SAMPLE_POLLS):
            try:
                polled = consumer.poll(_SAMPLE_POLL_MS, SAMPLES)
            except InvalidBatchError:
                continue
            found += [
                (f"{r.topic}/{r.partition} offset {r.offset}", r.value)
                for r in polled
                if r.value is not None
            ]
            if len(found) >= SAMPLES or not _has_more(consumer, requested):
                break
    return found[:SAMPLES]


def _has_more(consumer: SyncConsumer, requested: Mapping[LogId, Span]) -> bool:
    return any(
        (consumer.position((log.topic, log.partition)) or 0) < span.end
        for log, span in requested.items()
    )
