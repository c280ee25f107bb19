"""Finds the records of a log that its last disk has damaged, by probing gaps in what was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.client.sync import SyncConsumer
from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import TopicPartition
from tidelog_pipeline.archive.cluster_logs import logs_now
from tidelog_pipeline.archive.core.spans import LogId, Span, common, united

# How often a leader is polled for an offset before it is an error, and the wait of each poll.
_POLLS, _POLL_MS = 150, 200
# One batch at a time, because only its position matters.
_FETCH_BYTES = 1


class ProbeResult(NamedTuple):
    """The content of a log within a span.

    - `record`: the first offset that can be read, or None.
    - `damaged`: damaged offsets before it.
    """

    record: int | None
    damaged: tuple[Span, ...]


class Prober:
    """Probes one span after another with a consumer. Raises `TidelogError`."""

    def __init__(self, consumer: SyncConsumer) -> None:
        self._consumer = consumer

    def probe(self, log: LogId, span: Span) -> ProbeResult:
        """Probes a span.

        Offsets may have no record: those of a fence, and those that an aborted attempt left
        out. Records that retention has deleted count as such, too.
        """
        partition = TopicPartition(log.topic, log.partition)
        self._consumer.assign([partition])
        self._consumer.seek(partition, span.first)
        damaged: list[Span] = []
        at, polls = span.first, 0
        while at < span.end:
            try:
                batches = self._consumer.poll_batches(_POLL_MS, 1)
            except RecordsDamagedError as error:
                damaged += common(span, [Span(error.first_offset, error.next_offset)])
                self._consumer.seek(partition, error.next_offset)
                batches = []
            if batches:
                first = batches[0].first_offset
                return ProbeResult(first if first < span.end else None, united(damaged))
            reached = self._consumer.position(partition) or 0
            at, polls = max(at, reached), 0 if reached > at else polls + 1
            if polls == _POLLS:
                raise TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no leader of {log} answered for offset {at} within {_POLLS * _POLL_MS} ms; "
                    "run `tidelog explain` for the cause",
                )
        return ProbeResult(None, united(damaged))


def new_prober(bootstrap: str) -> SyncConsumer:
    return SyncConsumer(bootstrap, max_bytes=_FETCH_BYTES, on_out_of_range="earliest")


def left_out(bootstrap: str, gaps: Mapping[LogId, Iterable[Span]]) -> dict[LogId, tuple[Span, ...]]:
    """Returns the offsets that a read with `onDamage=skip` has left out.

    - `gaps`: offsets at which the read returned no record.

    A record that can be read by now, because another replica leads, was left out, too.
    """
    listed = {log: spans for log, spans in ((g, united(s)) for g, s in gaps.items()) if spans}
    if not listed:
        return {}
    now = logs_now(bootstrap, {log.topic for log in listed}, must_exist=False)
    found: dict[LogId, tuple[Span, ...]] = {}
    with new_prober(bootstrap) as consumer:
        prober = Prober(consumer)
        for log, spans in listed.items():
            there = common(now[log], spans) if log in now else ()
            out = [piece for span in there for piece in _left_out(prober, log, span)]
            if out:
                found[log] = united(out)
    return found


def _left_out(prober: Prober, log: LogId, span: Span) -> list[Span]:
    probed = prober.probe(log, span)
    rest = [] if probed.record is None else [Span(probed.record, span.end)]
    return [*probed.damaged, *rest]
