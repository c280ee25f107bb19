"""Replicas that hold different committed records, although the checksums of all of them match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tidelog.inspection.explain import causes, next_steps
from tidelog.inspection.explain.causes import Symptom
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import brokers, listed
from tidelog.inspection.state_reports import DivergedOffsets, ReplicaState
from tidelog.model import TopicPartition


def diverged_replicas(view: ClusterView) -> Iterator[Symptom]:
    """Yields one symptom for each partition. The replicas cannot show which of them is right."""
    found: dict[TopicPartition, list[tuple[int, ReplicaState]]] = {}
    for broker_id, replica in view.replicas():
        if replica.diverged:
            name = TopicPartition(replica.topic, replica.partition)
            found.setdefault(name, []).append((broker_id, replica))
    for name, reports in found.items():
        key = view.keys.get(name)
        yield _symptom(name, reports, is_sole=key is not None and len(key.replicas) == 1)


def _symptom(
    name: TopicPartition, reports: Sequence[tuple[int, ReplicaState]], *, is_sole: bool
) -> Symptom:
    concerned = sorted({b for own, replica in reports for b in _brokers(own, replica)})
    ranges = sorted({(d.first_offset, d.next_offset) for _, r in reports for d in r.diverged})
    offsets = listed(f"{first} to {following - 1}" for first, following in ranges)
    which = f"the replicas of {name} on {brokers(concerned)} hold different committed records"
    if len(concerned) == 1:
        which = (
            f"the disk of {brokers(concerned)} holds other committed records of {name} than were "
            "written to it"
        )
    one = _next_step_of_sole if is_sole else _next_step
    return Symptom(
        causes.REPLICAS_DIVERGED,
        causes.CRITICAL,
        name,
        f"{which}, at offsets {offsets}; the checksums of all of them hold",
        f"have replicas on {brokers(concerned)} that hold different committed records",
        partial(next_steps.for_each, partial(one, concerned)),
        tuple(
            _evidence(name, own, diverged)
            for own, replica in reports
            for diverged in replica.diverged
        ),
        (),
        reports[0][0],
    )


def _brokers(own: int, replica: ReplicaState) -> set[int]:
    return {own} | {diverged.broker_id for diverged in replica.diverged}


def _evidence(name: TopicPartition, own: int, diverged: DivergedOffsets) -> str:
    offsets = f"offsets {diverged.first_offset} to {diverged.next_offset - 1}"
    other = f"broker {diverged.broker_id}"
    if diverged.broker_id == own:
        line = f"{name}: broker-{own} appended digest {diverged.digest} at {offsets}, and its disk "
        line += f"holds {diverged.other_digest}"
    else:
        line = f"{name}: broker-{own} has digest {diverged.digest} at {offsets}, and {other} "
        line += diverged.other_digest
    if diverged.batch:
        line += f"; the first batch that differs is {diverged.batch} on broker {own}"
    if diverged.other_batch:
        line += f" and {diverged.other_batch} on {other}"
    if diverged.segments:
        line += f"; in {listed(diverged.segments)} on broker {own}"
    if diverged.other_segments:
        line += f" and {listed(diverged.other_segments)} on {other}"
    return f"{line} (described in {diverged.evidence} in the data_dir of broker {own})"


def _next_step_of_sole(concerned: Sequence[int], name: TopicPartition) -> str:
    return (
        f"Consumers get what the disk holds now, and no other replica of {name} shows what was "
        f"written. Check the disk of {brokers(concerned)} and who has access to it. Compare "
        f"`tidelog dump-log --records FILE` of replicas/{name.topic}-{name.partition}.* in its "
        "data_dir with a backup or an archive, and write the records that differ to another topic."
    )


def _next_step(concerned: Sequence[int], name: TopicPartition) -> str:
    directory = f"replicas/{name.topic}-{name.partition}.*"
    return (
        f"Consumers get what the leader of {name} holds. Compare the replicas with each other and "
        f"with a backup or an archive: `tidelog dump-log --records FILE` of {directory} in the "
        f"data_dir of {brokers(concerned)}, and of the other replicas. If the leader's is "
        f"wrong, elect a correct one first (tidelog leaders move {name}=BROKER). Then have the "
        f"wrong one copied again: stop its broker, move {directory} out of its data_dir and keep "
        "it, and start the broker."
    )
