"""Clients, and services of the cluster, whose requests are rejected repeatedly."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.explain import causes, clocks
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import listed, span
from tidelog.inspection.explain.observation import name_of
from tidelog.inspection.state_reports import Finding, RejectedRequests, ServiceState
from tidelog.phrases import plural
from tidelog.state_changes.topic import is_internal

# Rejections within the minute over which brokers count. A single one is an error that its client
# has seen.
MANY_REJECTED = 3
# The client has stopped after this time without another rejection.
OVER_AFTER_MS = 30_000
# The reason of fetches for records that retention has deleted; brokers count over five minutes.
OUTRUN = "OFFSET_OUT_OF_RANGE"
OUTRUN_OVER_AFTER_MS = 150_000
INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
_NEXT_STEP = {
    "BATCH_TOO_LARGE": "Have the client send smaller records, or raise the topic's limit: tidelog "
    "topics alter-config {topic} --set max_batch_bytes=BYTES.",
    INVALID_TIMESTAMP: "Correct the clock of the client, or raise timestamp_max_ahead_ms of "
    "topic {topic}.",
    "FENCED_PRODUCER_EPOCH": "Two producers use one name; give each a name of its own, or end the "
    "older one.",
    "UNKNOWN_TOPIC_OR_PARTITION": "Create the topic, or correct its name in the client: tidelog "
    "topics list.",
}
_OTHERWISE = "Check the client's errors; the message names what the broker rejects."


def rejected(view: ClusterView) -> Iterator[Finding]:
    """Yields one finding for each topic and reason, whichever of its leaders reject."""
    found: dict[tuple[str, str], list[tuple[ServiceState, RejectedRequests]]] = {}
    for state in view.reporters:
        for rejection in state.broker.rejected_requests if state.broker else ():
            over_after_ms = OUTRUN_OVER_AFTER_MS if rejection.reason == OUTRUN else OVER_AFTER_MS
            if rejection.last_ms <= over_after_ms:
                found.setdefault((rejection.topic, rejection.reason), []).append((state, rejection))
    for (topic, reason), each in sorted(found.items()):
        if reason == OUTRUN:
            each = [
                (state, rejection) for state, rejection in each if rejection.count >= MANY_REJECTED
            ]
            if each:
                yield _outrun(topic, each)
            continue
        count = sum(rejection.count for _, rejection in each)
        if count < MANY_REJECTED:
            continue
        if is_internal(topic):
            yield _of_services(view, topic, reason, count, each)
        else:
            yield _finding(topic, reason, count, each)


def _outrun(topic: str, each: list[tuple[ServiceState, RejectedRequests]]) -> Finding:
    """Each broker counts a single partition."""
    most = max(rejection.count for _, rejection in each)
    return Finding(
        causes.REQUESTS_REJECTED,
        causes.WARNING,
        f"retention deletes records of topic {topic!r} before consumers read them: the offset of a "
        f"fetch was deleted already {most} times in one partition within the last five minutes",
        tuple(
            f"{name_of(state)} has rejected {plural(rejection.count, 'fetch', 'fetches')} of one "
            f'partition, the last {span(rejection.last_ms)} ago: "{rejection.message}"'
            for state, rejection in each
        ),
        "Let more or faster consumers read the topic, or keep its records longer: tidelog topics "
        f"alter-config {topic} --set retention_ms=MS --set retention_bytes=BYTES.",
        topic,
        broker=each[0][0].id if len(each) == 1 else -1,
    )


def _of_services(
    view: ClusterView,
    topic: str,
    reason: str,
    count: int,
    each: list[tuple[ServiceState, RejectedRequests]],
) -> Finding:
    """The cluster's own services write internal topics."""
    who = listed(name_of(state) for state, _ in each)
    senders, because = "the cluster's own services", list[str]()
    next_step = (
        f"No client writes topic {topic}. Search the logs of controllers and brokers for "
        "state_changes_held: it names what the brokers reject. Do not change the configuration of "
        "the topic."
    )
    if reason == INVALID_TIMESTAMP:
        ahead = clocks.services_ahead(view)
        which = "the service whose clock is ahead (state_changes_held in its log reports it)"
        if ahead:
            senders, because = listed(ahead), [*dict.fromkeys(map(str, ahead.values()))]
            which = senders
        next_step = (
            f"Correct the clock of {which} (`chronyc tracking` and `timedatectl` on its "
            f"machine show the state of its time service). No client writes topic {topic}: do not "
            "change its configuration. Events that were held are published by themselves then."
        )
    return Finding(
        causes.REQUESTS_REJECTED,
        causes.WARNING,
        f"events of {senders} are rejected repeatedly: {plural(count, 'request')} to topic "
        f"{topic!r} within the last minute by {who}, because of {reason}",
        _lines(each),
        next_step,
        topic,
        broker=each[0][0].id if len(each) == 1 else -1,
        because=tuple(because),
    )


def _lines(each: list[tuple[ServiceState, RejectedRequests]]) -> tuple[str, ...]:
    return tuple(
        f"{name_of(state)} has rejected {plural(rejection.count, 'produce request')}, the last "
        f'{span(rejection.last_ms)} ago: "{rejection.message}"'
        for state, rejection in each
    )


def _finding(
    topic: str, reason: str, count: int, each: list[tuple[ServiceState, RejectedRequests]]
) -> Finding:
    who = listed(name_of(state) for state, _ in each)
    return Finding(
        causes.REQUESTS_REJECTED,
        causes.WARNING,
        f"clients of topic {topic!r} are rejected repeatedly: {plural(count, 'request')} "
        f"within the last minute by {who}, because of {reason}",
        _lines(each),
        _NEXT_STEP.get(reason, _OTHERWISE).format(topic=topic),
        topic,
        broker=each[0][0].id if len(each) == 1 else -1,
    )
