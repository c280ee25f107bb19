"""The leader's side of fetch sessions (section 3 of docs/internals/protocol.md; interleaving 15;
KIP-227): what each follower told last, and of which partitions it may have to be told.
Pure.

A partition that a request leaves out counts as though it were told again. For one that
stands still at the leader's end that needs no work: its `FollowerProgress` refers to the
session, whose time stands for it. All others are in `news` or `recount`, which the
partitions themselves fill as they change.
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
    FetchName,
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResult,
)

# Two for each follower; beyond that the one that has not asked for longest goes.
MAX_SESSIONS = 2_000
# Where more than so many would be counted anew with each request, as after the restart of a
# broker that holds thousands, they are so often.
MANY_RECOUNTED = 256
RECOUNT_INTERVAL_MS = 250
# What takes a few microseconds each, and is done without a pause.
DROPPED_AT_ONCE = 256


class Watches(Protocol):
    """Who is told of a partition."""

    def watch(self, partition: Partition, watch: ReplicaWatch) -> None: ...

    def unwatch(self, partition: Partition, watch: ReplicaWatch) -> None: ...


class Told:
    """A partition of a session: what the follower told last, and the high watermark that it
    has been told since; NO_OFFSET: none."""

    __slots__ = ("entry", "high_watermark", "partition")

    def __init__(self, entry: ReplicaFetchEntry, partition: Partition) -> None:
        self.entry = entry
        self.partition = partition
        self.high_watermark = NO_OFFSET


class FollowerLane(NamedTuple):
    """Of one follower. A leader has a session for each."""

    broker_id: int
    synced: bool


class FetchSession:
    """Invariant: what is in none of `news` and `recount` stands at the leader's end, in the
    leader's epoch, and has been told the high watermark.

    `news`: partitions that may have something to tell. `recount`: those whose position
    counts anew with the next request, among them those that may join the ISR. Both in the
    order in which they came."""

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
        self.hurried = False  # the request that is served
        self.ended = False
        self.time = SessionTime(now_ms)
        self.partitions: dict[ReplicaKey, Told] = {}
        self.news: dict[ReplicaKey, None] = {}
        self.recount: dict[ReplicaKey, None] = {}
        # Whose log start has moved since the answer was begun that is being made.
        self._moved_starts: set[ReplicaKey] = set()
        self._recounted_ms = now_ms - RECOUNT_INTERVAL_MS
        self.wake: Callable[[], None] = _nobody_waits
        self._watches = watches

    # -- told by partitions --------------------------------------------------------

    def log_grew(self, partition: Partition) -> None:
        self._note(partition)
        self.wake()

    def leadership_ended(self, partition: Partition) -> None:
        """Goes with the next answer; nobody has to be woken for it: whom else to follow is for
        the controller to tell."""
        self._note(partition)

    def high_watermark_moved(self, partition: Partition) -> None:
        """Goes with the next answer, too."""
        self._note(partition)

    def log_start_moved(self, partition: Partition) -> None:
        """Goes with the next answer, too, which the follower has to be sent for it."""
        told = self.partitions.get(partition.key)
        if told is not None:
            told.high_watermark = NO_OFFSET
            self._moved_starts.add(partition.key)
            self._note(partition)

    def followers_forgotten(self, partition: Partition) -> None:
        self.recount[partition.key] = None

    def _note(self, partition: Partition) -> None:
        self.news[partition.key] = None

    # -- told by requests ----------------------------------------------------------

    def supersede(self, key: ReplicaKey) -> None:
        """What was told of this partition stands no longer; it stays in the session if `record`
        follows."""
        told = self.partitions.get(key)
        if told is not None:
            told.partition.session_left(self.follower, self.time)

    def to_recount(self, named: Collection[ReplicaKey], now_ms: int) -> list[ReplicaFetchEntry]:
        """What this request leaves out, and has to be counted as though it were told."""
        keys = dict(self.news)
        is_time = now_ms - self._recounted_ms >= RECOUNT_INTERVAL_MS
        if is_time or len(self.recount) <= MANY_RECOUNTED:
            self._recounted_ms = now_ms
            keys = {**self.recount, **keys}
        return [self.partitions[key].entry for key in keys if key not in named]

    def record(self, entry: ReplicaFetchEntry, partition: Partition) -> None:
        """A position that has been counted."""
        key = entry.replica
        told = self.partitions.get(key)
        if told is None or told.partition is not partition:
            self.drop(key)
            self._watches.watch(partition, self)
            self.partitions[key] = Told(entry, partition)
            self.news[key] = None
        elif told.entry is not entry:
            # It may not have taken the high watermark that it was told: its epoch was
            # another by then, or its disk was behind.
            told.entry, told.high_watermark = entry, NO_OFFSET
            self.news[key] = None
        if partition.is_in_sync(self.follower):
            self.recount.pop(key, None)
        else:
            self.recount[key] = None

    def agreed_offset(self, key: ReplicaKey) -> int:
        """Up to where the follower's log was found to be the leader's; NO_OFFSET: nowhere."""
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
        """What `answered` is told of from now on is read after this."""
        self._moved_starts.clear()

    def answered(self, result: ReplicaFetchResult) -> None:
        """Both ends do the same: what is answered with an error or a divergence has to be
        named again."""
        key = result.replica
        if result.answer is None or result.answer.diverging is not None:
            self.drop(key)
        elif key not in self._moved_starts and (told := self.partitions.get(key)) is not None:
            told.high_watermark = result.answer.high_watermark

    def hurry(self) -> None:
        """The request that is served is to be answered at once."""
        self.hurried = True
        self.wake()

    def end(self) -> None:
        """Partitions that are left are dropped by `drop_some`: until then it is to them the session
        of a follower that asks no more."""
        self.ended = True
        self.drop_some()
        self.wake()

    def drop_some(self) -> None:
        for key in list(islice(self.partitions, DROPPED_AT_ONCE)):
            self.drop(key)


class FetchSessions:
    """At most MAX_SESSIONS; one for each lane of a follower, of its newest life."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        # The one that has asked last is last. Those that have ended stay: what is older
        # than they are is late all the same.
        self._sessions: dict[FollowerLane, FetchSession] = {}
        # Those that have ended and hold partitions.
        self._ending: list[FetchSession] = []
        self._last_id = NO_SESSION

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, request: ReplicaFetchRequest, now_ms: int) -> FetchSession | None:
        """The session of this request, which has it served from now on; None: the request
        is late, or there is no such session any more."""
        if request.session_id == NO_SESSION:
            return self._open(request, now_ms)
        return self._resume(request)

    def hurry(self, fetch: FetchName) -> None:
        """Whoever serves this very request shall answer it."""
        session = self._sessions.get(FollowerLane(fetch.broker_id, fetch.synced))
        if session is None or not session.serving or session.broker_epoch != fetch.broker_epoch:
            return
        serves = (session.id, session.sequence)
        if fetch.session_id == NO_SESSION and session.sequence == 0:
            serves = (NO_SESSION, session.number)
        if serves == (fetch.session_id, fetch.session_sequence):
            session.hurry()

    def id_of(self, lane: FollowerLane, time: SessionTime | None) -> int:
        """The session of this lane, if that is its time; NO_SESSION: it is none of these, or
        over."""
        session = self._sessions.get(lane)
        if session is None or session.ended or session.time is not time:
            return NO_SESSION
        return session.id

    def last_requests(self) -> dict[int, int]:
        """When each follower asked last, in milliseconds of the monotonic clock."""
        found: dict[int, int] = {}
        for lane, session in self._sessions.items():
            at_ms = session.time.last_request_ms
            found[lane.broker_id] = max(at_ms, found.get(lane.broker_id, at_ms))
        return found

    def _open(self, request: ReplicaFetchRequest, now_ms: int) -> FetchSession | None:
        lane = FollowerLane(request.broker_id, request.synced)
        present = self._sessions.get(lane)
        if present is not None:
            if request.broker_epoch < present.broker_epoch:
                # Of a former life: each partition says so, and nothing is kept.
                return FetchSession(NO_SESSION, request, self._watches, now_ms)
            same_life = request.broker_epoch == present.broker_epoch
            if same_life and request.session_sequence <= present.number:
                return None
            self._remove(lane)
        while len(self._sessions) >= MAX_SESSIONS:
            self._remove(next(iter(self._sessions)))
        self._last_id += 1
        session = FetchSession(self._last_id, request, self._watches, now_ms)
        self._sessions[lane] = session
        return session

    def _resume(self, request: ReplicaFetchRequest) -> FetchSession | None:
        lane = FollowerLane(request.broker_id, request.synced)
        session = self._sessions.get(lane)
        if session is None or session.ended or session.id != request.session_id:
            return None
        lives = request.broker_epoch, request.leader_broker_epoch
        if lives != (session.broker_epoch, session.leader_broker_epoch):
            return None
        if request.session_sequence <= session.sequence:
            return None  # sent twice, or held up: it says nothing of the present
        if session.serving or request.session_sequence != session.sequence + 1:
            self.end(session)
            return None
        session.sequence = request.session_sequence
        session.serving = True
        session.hurried = False
        self._sessions[lane] = self._sessions.pop(lane)
        return session

    def end(self, session: FetchSession) -> None:
        session.end()
        if session.partitions:
            self._ending.append(session)

    def drop_ended(self) -> Iterator[None]:
        """Of the sessions that have ended, the partitions that are left, with a stop after each
        slice."""
        while self._ending:
            self._ending[-1].drop_some()
            if not self._ending[-1].partitions:
                self._ending.pop()
            yield

    def _remove(self, lane: FollowerLane) -> None:
        self.end(self._sessions.pop(lane))


def _nobody_waits() -> None:
    pass
