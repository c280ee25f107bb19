"""The leader's side of the comparison of replicas: it compares what followers report with what it
holds ("Replica digest" in docs/internals/protocol.md). What differs is reported, and never
changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tidelog.model import NO_OFFSET
from tidelog_broker.damage.batch_restores import BatchRestores
from tidelog_broker.damage.divergences import Divergences, Place
from tidelog_broker.partition.range_digest import BatchSummary, RangeDigest, first_difference
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.replication.transport import (
    MAX_REPORTED_DIGESTS,
    DivergedRange,
    ReportedDigest,
)
from tidelog_broker.storage.replica_digests import ReadBatches, ReplicaDigests

# Ranges for whose batches a follower is yet to be asked.
MAX_UNLISTED = MAX_REPORTED_DIGESTS


class DigestCheck:
    """`compared`, `differing` and `not_compared` count ranges since the start."""

    def __init__(
        self,
        digests: ReplicaDigests,
        divergences: Divergences,
        manager: ReplicaManager,
        restores: BatchRestores,
    ) -> None:
        self._restores = restores
        self._digests = digests
        self._divergences = divergences
        self._manager = manager
        # By follower, at most MAX_UNLISTED of each.
        self._unlisted: dict[int, list[DivergedRange]] = {}
        self.compared = 0
        self.differing = 0
        self.not_compared = 0

    def compare(
        self,
        follower: int,
        reported: Sequence[ReportedDigest],
        position_of: Callable[[ReplicaKey], int],
    ) -> Sequence[DivergedRange]:
        """Compares what a follower reports up to its `position_of` a partition, below which its log
        was found to be the leader's; NO_OFFSET: it was not. Returns the ranges of which it is to
        list its batches."""
        for report in reported:
            if report.digest.end > position_of(report.replica):
                continue
            if not self._restores.received(follower, report):
                self._compare(follower, report)
        wanted = self._restores.wanted(follower, position_of)
        unlisted = self._unlisted.pop(follower, [])
        if not unlisted:
            return wanted
        asked = [found for found in unlisted if position_of(found.replica) != NO_OFFSET]
        rest = [found for found in unlisted if found not in asked]
        if rest:
            self._unlisted[follower] = rest
        return [*asked, *wanted]

    def _compare(self, follower: int, report: ReportedDigest) -> None:
        key, (start, end, _) = report.replica, report.digest
        digests = self._digests.of(key)
        partition = self._manager.find(key)
        if digests is None or partition is None or not digests.is_on:
            return
        if start < partition.log.log_start_offset:
            # Retention has taken it here, and takes it from the follower.
            return
        if report.batches:
            locate = partial(self._locate, follower, report)
            self._digests.read(key, start, end, ("locate", follower), locate)
            return
        own = digests.of(start, end)
        if own is not None:
            self._judge(follower, report, own)
            return
        if digests.is_open(start, end):
            # The follower reports it again with what it has fetched since.
            return
        compare = partial(self._read, follower, report)
        if not self._digests.read(key, start, end, ("compare", follower), compare):
            self.not_compared += 1

    def _read(self, follower: int, report: ReportedDigest, found: ReadBatches | None) -> None:
        if found is None or found.digest is None:
            self.not_compared += 1
        else:
            self._judge(follower, report, found.digest)

    def _judge(self, follower: int, report: ReportedDigest, own: RangeDigest) -> None:
        self.compared += 1
        key, other = report.replica, report.digest
        if own == other:
            self._divergences.equal(key, follower, own)
            return
        self.differing += 1
        if not self._divergences.found(key, follower, own, other):
            return
        unlisted = self._unlisted.setdefault(follower, [])
        diverged = DivergedRange(key, own.start, own.end)
        if diverged not in unlisted and len(unlisted) < MAX_UNLISTED:
            unlisted.append(diverged)

    def _locate(self, follower: int, report: ReportedDigest, found: ReadBatches | None) -> None:
        """Both know their batches of the range."""
        if found is None:
            # The follower is asked for them again where the range still differs.
            return
        place = Place(report.replica, follower, report.digest.start)
        known = self._divergences.standing(place)
        if known is None:
            return
        offset = first_difference(found.batches, report.batches)
        self._divergences.located(
            place,
            replace(
                known,
                batch_offset=offset,
                own_batch=_batch_at(found.batches, offset),
                other_batch=_batch_at(report.batches, offset),
                own_segments=tuple(found.segments),
                other_segments=tuple(report.segments),
            ),
        )

    def scrubbed(self, key: ReplicaKey, found: RangeDigest) -> None:
        """What a range of a replica here holds on the disk, each of whose batches is sound."""
        digests = self._digests.of(key)
        if digests is None:
            return
        taken = digests.appended_in(found.start, found.end)
        differs = digests.scrubbed(found)
        if self._divergences.scrubbed(key, found, is_as_appended=taken == found):
            return
        if differs is not None:
            self.differing += 1
            own_id = self._manager.broker_id
            known = self._divergences.standing(Place(key, own_id, found.start))
            if taken is None and known is not None and known.end == found.end:
                # Memory has only what the disk held before.
                differs = differs._replace(value=int(known.own, 16))
            self._divergences.found(key, own_id, differs, found)


def _batch_at(batches: Sequence[BatchSummary], offset: int) -> str:
    """Or the one that holds the offset; empty: none does."""
    for batch in batches:
        if batch.base_offset <= offset < batch.base_offset + batch.record_count:
            return str(batch)
    return ""
