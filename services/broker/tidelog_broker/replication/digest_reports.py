"""The follower's side of the comparison of replicas: which digests the next fetch reports.

See "Replica digest" in docs/internals/protocol.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from tidelog_broker.core.fetch_messages import MAX_REPORTED_DIGESTS, DivergedRange, ReportedDigest
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.range_digest import LogDigests, RangeDigest
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.storage.replica_digests import ReadBatches, ReadDone

# Fetches in between report nothing, so that a busy follower spends little time on it.
REPORT_INTERVAL_S = 0.25
# Partitions that one fetch examines.
MAX_EXAMINED = 256
# Ranges whose batches wait to be listed; a fetch lists the batches of one.
MAX_LISTED = 16


class DigestSource(Protocol):
    """The `ReplicaDigests` of the broker."""

    def of(self, key: ReplicaKey) -> LogDigests | None: ...

    def read(
        self,
        key: ReplicaKey,
        start: int,
        end: int,
        requester: Hashable,
        done: ReadDone,
        *,
        with_contents: bool = False,
    ) -> bool: ...

    def read_open(self, key: ReplicaKey) -> None: ...

    def read_again(self, key: ReplicaKey) -> bool: ...


class DigestReports:
    """The reports of one fetcher.

    A report without an answer is sent again: a log forgets it only after an answer of a leader that
    compares it. A leader that is followed from now on gets all reports, also those that a previous
    leader has.
    """

    def __init__(self, digests: DigestSource) -> None:
        self._digests = digests
        # Partitions that may have something to report.
        self._noted: dict[ReplicaKey, Partition] = {}
        # Partitions whose leader has yet to find that the logs agree: before, it compares nothing.
        self._followed: dict[ReplicaKey, Partition] = {}
        self._listed: list[ReportedDigest] = []
        self._sent: list[ReportedDigest] = []
        self._due_s = -math.inf

    def note(self, partition: Partition) -> None:
        self._noted[partition.key] = partition

    def follow(self, partition: Partition) -> None:
        """Called when the partition is followed in a new epoch."""
        self.forget(partition.key)
        self._followed[partition.key] = partition

    def forget(self, key: ReplicaKey) -> None:
        self._noted.pop(key, None)
        self._followed.pop(key, None)
        self._sent = [sent for sent in self._sent if sent.replica != key]
        self._listed = [listed for listed in self._listed if listed.replica != key]

    def next(self, now_s: float) -> Sequence[ReportedDigest]:
        """Returns the reports for the request that is made now.

        Its positions are those of the logs now.
        """
        self._sent = []
        if now_s < self._due_s or not (self._noted or self._listed):
            return ()
        self._due_s = now_s + REPORT_INTERVAL_S
        # After a start one range is read for each report, of one partition after another.
        read_again: ReplicaKey | None = None
        for key in list(islice(self._noted, MAX_EXAMINED)):
            partition = self._noted.pop(key)
            digests = self._digests.of(key)
            if digests is not None:
                self._report(partition, digests)
            if digests is not None and digests.has_reports(partition.log.log_start_offset):
                self._noted[key] = partition
                if read_again is None and self._digests.read_again(key):
                    read_again = key
        if read_again is not None:
            self._noted[read_again] = self._noted.pop(read_again)
        listed, self._listed = self._listed[:1], self._listed[1:]
        return [*self._sent, *listed]

    def _report(self, partition: Partition, digests: LogDigests) -> None:
        room = MAX_REPORTED_DIGESTS - 1 - len(self._sent)
        found = digests.reports(partition.high_watermark, partition.log.log_start_offset, room)
        self._sent += [ReportedDigest(partition.key, digest) for digest in found]
        self._digests.read_open(partition.key)

    def answered(
        self, diverged: Sequence[DivergedRange], is_agreed: Callable[[ReplicaKey], bool]
    ) -> None:
        """Notes that the leader has received the reports.

        It has compared them where it found that the logs agree. It requests the batches of the
        `diverged` ranges.
        """
        for replica, digest, *_ in self._sent:
            digests = self._digests.of(replica)
            if digests is not None and is_agreed(replica):
                digests.reported(digest)
        self._sent = []
        for replica, start, end, wants_contents in diverged:
            if is_agreed(replica):
                done: ReadDone = partial(self._list, replica)
                if wants_contents:
                    done = partial(self._give, replica, start, end)
                self._digests.read(replica, start, end, "list", done, with_contents=wants_contents)
        for key in list(islice(self._followed, MAX_EXAMINED)):
            partition, digests = self._followed.pop(key), self._digests.of(key)
            if digests is None or not is_agreed(key):
                self._followed[key] = partition
            elif digests.is_on:
                digests.report_again()
                self.note(partition)

    def _list(self, replica: ReplicaKey, found: ReadBatches | None) -> None:
        if found is None or found.digest is None:
            return
        self._add(ReportedDigest(replica, found.digest, found.batches, found.segments))

    def _give(self, replica: ReplicaKey, start: int, end: int, found: ReadBatches | None) -> None:
        """Adds the batches themselves; none if they are unreadable here, too."""
        if found is None:
            return
        if found.digest is None:
            self._add(ReportedDigest(replica, RangeDigest(start, end, 0), found.batches))
        elif not any(listed.contents for listed in self._listed):
            # One range at a time, because batches are large. The leader requests the others again.
            self._add(ReportedDigest(replica, found.digest, found.batches, contents=found.contents))

    def _add(self, listed: ReportedDigest) -> None:
        if len(self._listed) < MAX_LISTED:
            self._listed.append(listed)
