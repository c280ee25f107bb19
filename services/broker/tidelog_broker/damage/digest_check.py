"""The leader's side of the comparison of replicas: it compares what followers report with its
own log ("Replica digest" in docs/internals/protocol.md). Differences are reported, and never
changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tidelog.model import NO_OFFSET
from tidelog_broker.core.fetch_messages import MAX_REPORTED_DIGESTS, DivergedRange, ReportedDigest
from tidelog_broker.core.partition.range_digest import BatchSummary, RangeDigest, first_difference
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.damage.batch_restores import BatchRestores
from tidelog_broker.damage.divergences import DivergenceKey, Divergences
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.storage.replica_digests import ReadBatches, ReplicaDigests

# Ranges per follower for which its batches have not been requested yet.
MAX_UNLISTED = MAX_REPORTED_DIGESTS


class DigestCheck:
    """Compares digests. `compared` and `not_compared` count ranges since the start."""

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
        self.not_compared = 0

    def compare(
        self,
        follower: int,
        reported: Sequence[ReportedDigest],
        position_of: Callable[[ReplicaKey], int],
    ) -> Sequence[DivergedRange]:
        """Compares what a follower reports, and returns the ranges whose batches it has to list.

        Its log agrees with the leader's below `position_of` a partition; NO_OFFSET: that is
        unknown."""
        for report in reported:
            if report.digest.end > position_of(report.replica):
                continue
            if not self._restores.received(follower, report):
                self._compare(follower, report)
        ranges_to_request = self._restores.ranges_to_request(follower, position_of)
        unlisted = self._unlisted.pop(follower, [])
        if not unlisted:
            return ranges_to_request
        asked = [found for found in unlisted if position_of(found.replica) != NO_OFFSET]
        rest = [found for found in unlisted if found not in asked]
        if rest:
            self._unlisted[follower] = rest
        return [*asked, *ranges_to_request]

    def _compare(self, follower: int, report: ReportedDigest) -> None:
        key, (start, end, _) = report.replica, report.digest
        digests = self._digests.of(key)
        partition = self._manager.find(key)
        if digests is None or partition is None or not digests.is_on:
            return
        if start < partition.log.log_start_offset:
            # Retention has deleted it here, and deletes it on the follower.
            return
        if report.batches:
            locate = partial(self._locate, follower, report)
            self._digests.read(key, start, end, ("locate", follower), locate)
            return
        own = digests.of(start, end)
        if own is not None:
            self._compare_batches(follower, report, own)
            return
        if digests.is_open(start, end):
            # The follower reports it again after it has fetched more.
            return
        compare = partial(self._read, follower, report)
        if not self._digests.read(key, start, end, ("compare", follower), compare):
            self.not_compared += 1

    def _read(self, follower: int, report: ReportedDigest, found: ReadBatches | None) -> None:
        if found is None or found.digest is None:
            self.not_compared += 1
        else:
            self._compare_batches(follower, report, found.digest)

    def _compare_batches(self, follower: int, report: ReportedDigest, own: RangeDigest) -> None:
        self.compared += 1
        key, other = report.replica, report.digest
        if own == other:
            self._divergences.equal(key, follower, own)
            return
        if not self._divergences.found(key, follower, own, other):
            return
        unlisted = self._unlisted.setdefault(follower, [])
        diverged = DivergedRange(key, own.start, own.end)
        if diverged not in unlisted and len(unlisted) < MAX_UNLISTED:
            unlisted.append(diverged)

    def _locate(self, follower: int, report: ReportedDigest, found: ReadBatches | None) -> None:
        """Finds the first batch that differs, now that both lists of batches are known."""
        if found is None:
            # The follower has to list them again if the range still differs.
            return
        place = DivergenceKey(report.replica, follower, report.digest.start)
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
        """Applies the digest of a range of a local replica on disk, whose batches are all valid."""
        digests = self._digests.of(key)
        if digests is None:
            return
        taken = digests.appended_in(found.start, found.end)
        differs = digests.scrubbed(found)
        if self._divergences.scrubbed(key, found, is_as_appended=taken == found):
            return
        if differs is not None:
            own_id = self._manager.broker_id
            known = self._divergences.standing(DivergenceKey(key, own_id, found.start))
            if taken is None and known is not None and known.end == found.end:
                # Memory has only what the disk held before.
                differs = differs._replace(value=int(known.own, 16))
            self._divergences.found(key, own_id, differs, found)


def _batch_at(batches: Sequence[BatchSummary], offset: int) -> str:
    """Returns the batch that holds the offset; empty: none does."""
    for batch in batches:
        if batch.base_offset <= offset < batch.base_offset + batch.record_count:
            return str(batch)
    return ""
