"""The leader's side of fetch sessions. Pure.

See "Replica fetch" in docs/internals/protocol.md, rule `fetch-session-bound-to-incarnations`, and
KIP-227. A session holds the last position that a follower sent of each partition, and knows of
which partitions it may have news for the follower.

A partition that a request leaves out counts as if it had been sent again. That needs no work where
the follower is at the leader's end: its `FollowerProgress` refers to the session, and so to the
time of the last request. All others are in `news` or `recount`, which the partitions themselves
fill as they change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from tidelog.model import NO_OFFSET
from tidelog_broker.partition.isr import SessionTime
from tidelog_broker.partition.listener import ReplicaWatch
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replication.transport import (
    NO_SESSION,
    FetchId,
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResult,
)

# Two for each follower. Beyond that, the one with the oldest last request is removed.
MAX_SESSIONS = 2_000
# If more partitions than this would be counted again with each request, they are counted at this
# interval. That happens after the restart of a broker that holds thousands.
MANY_RECOUNTED = 256
RECOUNT_INTERVAL_MS = 250
# Partitions that are dropped without a pause, in a few microseconds each.
DROPPED_AT_ONCE = 256


class Watches(Protocol):
    """Registers watches of partitions."""

    def watch(self, partition: Partition, watch: ReplicaWatch) -> None: ...

    def unwatch(self, partition: Partition, watch: ReplicaWatch) -> None: ...


class SessionPartition:
    """A partition of a session.

    - `entry`: the last one that the follower sent.
    - `high_watermark`: the one that the follower was sent since; NO_OFFSET: none.
    """

    __slots__ = ("entry", "high_watermark", "partition")

    def __init__(self, entry: ReplicaFetchEntry, partition: Partition) -> None:
        self.entry = entry
        self.partition = partition
        self.high_watermark = NO_OFFSET


class FollowerStream(NamedTuple):
    """One of the two fetch streams of a follower. A leader has a session for each."""

    broker_id: int
    synced: bool


class FetchSession:
    """A session with one follower.

    Invariant: of a partition that is in neither `news` nor `recount`, the follower is at the
    leader's end, in the leader's epoch, and was sent the high watermark.

    - `news`: partitions that may have news for the follower, in the order in which they came.
    - `recount`: partitions whose position is counted again with the next request, among them those
      whose follower may join the ISR; in the order in which they came.
    """

    def __init__(
        self, session_id: int, opened_by: ReplicaFetchRequest, watches: Watches, now_ms: int
    ) -> None:
        self.id = session_id
        self.follower = opened_by.broker_id
        self.broker_epoch = opened_by.broker_epoch
        self.leader_broker_epoch = opened_by.leader_broker_epoch
        self.number = opened_by.session_sequence
        self.sequence = 0
        self.serving = True
        self.completed_early = False  # the request that is served is to be answered at once
        self.ended = False
        self.time = SessionTime(now_ms)
        self.partitions: dict[ReplicaKey, SessionPartition] = {}
        self.news: dict[ReplicaKey, None] = {}
        self.recount: dict[ReplicaKey, None] = {}
        # Partitions whose log start has moved since the present answer was begun.
        self._moved_starts: set[ReplicaKey] = set()
        self._recounted_ms = now_ms - RECOUNT_INTERVAL_MS
        self.wake: Callable[[], None] = _no_listener
        self._watches = watches

    # -- events of partitions --------------------------------------------------------

    def log_grew(self, partition: Partition) -> None:
        self._note(partition)
        self.wake()

    def leadership_ended(self, partition: Partition) -> None:
        """Goes with the next answer. No request is woken: the controller names the next leader."""
        self._note(partition)

    def high_watermark_moved(self, partition: Partition) -> None:
        """Goes with the next answer."""
        self._note(partition)

    def log_start_moved(self, partition: Partition) -> None:
        """Goes with the next answer, which must name the partition for it."""
        told = self.partitions.get(partition.key)
        if told is not None:
            told.high_watermark = NO_OFFSET
            self._moved_starts.add(partition.key)
            self._note(partition)

    def followers_forgotten(self, partition: Partition) -> None:
        self.recount[partition.key] = None

    def _note(self, partition: Partition) -> None:
        self.news[partition.key] = None

    # -- effects of requests ---------------------------------------------------------

    def supersede(self, key: ReplicaKey) -> None:
        """Invalidates the last position of this partition.

        It stays in the session if `record` follows.
        """
        told = self.partitions.get(key)
        if told is not None:
            told.partition.session_left(self.follower, self.time)

    def to_recount(self, named: Collection[ReplicaKey], now_ms: int) -> list[ReplicaFetchEntry]:
        """Returns the entries that this request leaves out and that count as if it named them."""
        keys = dict(self.news)
        is_time = now_ms - self._recounted_ms >= RECOUNT_INTERVAL_MS
        if is_time or len(self.recount) <= MANY_RECOUNTED:
            self._recounted_ms = now_ms
            keys = {**self.recount, **keys}
        return [self.partitions[key].entry for key in keys if key not in named]

    def record(self, entry: ReplicaFetchEntry, partition: Partition) -> None:
        """Records a position that has been counted."""
        key = entry.replica
        told = self.partitions.get(key)
        if told is None or told.partition is not partition:
            self.drop(key)
            self._watches.watch(partition, self)
            self.partitions[key] = SessionPartition(entry, partition)
            self.news[key] = None
        elif told.entry is not entry:
            # The follower may not have adopted the high watermark that it was sent: its epoch was
            # another one by then, or its disk was behind.
            told.entry, told.high_watermark = entry, NO_OFFSET
            self.news[key] = None
        if partition.is_in_sync(self.follower):
            self.recount.pop(key, None)
        else:
            self.recount[key] = None

    def agreed_offset(self, key: ReplicaKey) -> int:
        """Returns the offset up to which the two logs were found to agree; NO_OFFSET: none."""
        told = self.partitions.get(key)
        return NO_OFFSET if told is None else told.entry.position.fetch_offset

    def drop(self, key: ReplicaKey) -> None:
        self.news.pop(key, None)
        self.recount.pop(key, None)
        told = self.partitions.pop(key, None)
        if told is not None:
            told.partition.session_left(self.follower, self.time)
            self._watches.unwatch(told.partition, self)

    def begin_answer(self) -> None:
        """Everything that `answered` gets from now on is read after this call."""
        self._moved_starts.clear()

    def answered(self, result: ReplicaFetchResult) -> None:
        """Notes a result that is sent.

        Both ends do the same: after an error or a divergence the follower has to name the partition
        again.
        """
        key = result.replica
        if result.answer is None or result.answer.diverging is not None:
            self.drop(key)
        elif key not in self._moved_starts and (told := self.partitions.get(key)) is not None:
            told.high_watermark = result.answer.high_watermark

    def complete_early(self) -> None:
        """Answers the request that is served at once."""
        self.completed_early = True
        self.wake()

    def end(self) -> None:
        """Ends the session.

        `drop_some` drops the partitions that are left. Until then they have the session of a
        follower that fetches no more.
        """
        self.ended = True
        self.drop_some()
        self.wake()

    def drop_some(self) -> None:
        for key in list(islice(self.partitions, DROPPED_AT_ONCE)):
            self.drop(key)


class FetchSessions:
    """At most MAX_SESSIONS sessions: one for each stream of a follower's newest incarnation."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        # In the order of their last requests. Ended sessions stay: what is older than they are is
        # late.
        self._sessions: dict[FollowerStream, FetchSession] = {}
        # Ended sessions that still hold partitions.
        self._ending: list[FetchSession] = []
        self._last_id = NO_SESSION

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, request: ReplicaFetchRequest, now_ms: int) -> FetchSession | None:
        """Returns the session that serves this request from now on.

        None: the request is late, or its session does not exist any more.
        """
        if request.session_id == NO_SESSION:
            return self._open(request, now_ms)
        return self._resume(request)

    def complete_early(self, fetch: FetchId) -> None:
        """Answers this very request at once, if it is being served."""
        session = self._sessions.get(FollowerStream(fetch.broker_id, fetch.synced))
        if session is None or not session.serving or session.broker_epoch != fetch.broker_epoch:
            return
        serves = (session.id, session.sequence)
        if fetch.session_id == NO_SESSION and session.sequence == 0:
            serves = (NO_SESSION, session.number)
        if serves == (fetch.session_id, fetch.session_sequence):
            session.complete_early()

    def id_of(self, stream: FollowerStream, time: SessionTime | None) -> int:
        """Returns the id of the stream's session if it has this `time`, else NO_SESSION.

        Also returns NO_SESSION if the session has ended.
        """
        session = self._sessions.get(stream)
        if session is None or session.ended or session.time is not time:
            return NO_SESSION
        return session.id

    def last_requests(self) -> dict[int, int]:
        """Returns when each follower sent its last request, in monotonic milliseconds."""
        found: dict[int, int] = {}
        for stream, session in self._sessions.items():
            at_ms = session.time.last_request_ms
            found[stream.broker_id] = max(at_ms, found.get(stream.broker_id, at_ms))
        return found

    def _open(self, request: ReplicaFetchRequest, now_ms: int) -> FetchSession | None:
        stream = FollowerStream(request.broker_id, request.synced)
        present = self._sessions.get(stream)
        if present is not None:
            if request.broker_epoch < present.broker_epoch:
                # It is from a previous incarnation: each partition rejects it, and nothing is kept.
                return FetchSession(NO_SESSION, request, self._watches, now_ms)
            same_life = request.broker_epoch == present.broker_epoch
            if same_life and request.session_sequence <= present.number:
                return None
            self._remove(stream)
        while len(self._sessions) >= MAX_SESSIONS:
            self._remove(next(iter(self._sessions)))
        self._last_id += 1
        session = FetchSession(self._last_id, request, self._watches, now_ms)
        self._sessions[stream] = session
        return session

    def _resume(self, request: ReplicaFetchRequest) -> FetchSession | None:
        stream = FollowerStream(request.broker_id, request.synced)
        session = self._sessions.get(stream)
        if session is None or session.ended or session.id != request.session_id:
            return None
        lives = request.broker_epoch, request.leader_broker_epoch
        if lives != (session.broker_epoch, session.leader_broker_epoch):
            return None
        if request.session_sequence <= session.sequence:
            return None  # sent twice, or delayed: it does not describe the present
        if session.serving or request.session_sequence != session.sequence + 1:
            self.end(session)
            return None
        session.sequence = request.session_sequence
        session.serving = True
        session.completed_early = False
        self._sessions[stream] = self._sessions.pop(stream)
        return session

    def end(self, session: FetchSession) -> None:
        session.end()
        if session.partitions:
            self._ending.append(session)

    def drop_ended(self) -> Iterator[None]:
        """Drops the remaining partitions of ended sessions. Yields after each slice."""
        while self._ending:
            self._ending[-1].drop_some()
            if not self._ending[-1].partitions:
                self._ending.pop()
            yield

    def _remove(self, stream: FollowerStream) -> None:
        self.end(self._sessions.pop(stream))


def _no_listener() -> None:
    pass
