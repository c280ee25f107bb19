"""Follows one leader. One long-polled fetch at a time carries every partition that this broker
follows there (but see `fetchers`), and names those that have news."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.model import NOT_KNOWN, FollowerState
from tidelog.state_changes.event import Cause
from tidelog_broker.core.fetch_messages import (
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResult,
)
from tidelog_broker.core.follower_session import EpochPair, FollowerSession, Positions
from tidelog_broker.core.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.errors import AppendOrderError, LogError
from tidelog_broker.replication.digest_reports import DigestReports
from tidelog_broker.replication.follower_context import FollowerContext
from tidelog_broker.replication.follower_events import FollowerEvents
from tidelog_broker.replication.held_back import MAX_RETRY_DELAY_S, HeldBack, retry_delay_s
from tidelog_broker.replication.move_throttle import Receiving
from tidelog_broker.replication.transport import ANSWER_TIMEOUT_MS, Peers, PeerUnreachableError
from tidelog_runtime.turns import in_turns

# Partitions that are not fetched because of the throttle are checked again after this time at the
# latest: the bound may have changed, or the replica may be in sync.
MAX_THROTTLE_PAUSE_MS = 500
# Partitions whose position one request names. More of them need several requests, of which only the
# last one waits: neither end works for more than some milliseconds without a pause.
MAX_NAMED = 2_000
# A fetch that ends this long after its timeout ran in a stalled process: its answer may have come
# meanwhile, and the next fetch will show (rule `quiet-partition-reports-its-end`).
STALLED_MIN_MS = 1_000

_log = structlog.get_logger()


class Unanswered(NamedTuple):
    """The first of the fetches that one incarnation of a leader has left without an answer.
    `since`: when it was sent (loop time)."""

    broker_epoch: int
    since: float


@dataclass(slots=True)
class UnderWay:
    """A fetch that has no answer yet. `given_up`: the timeout that ends it."""

    address: str
    request: ReplicaFetchRequest
    given_up: asyncio.Timeout
    is_hurried: bool = False


@dataclass(frozen=True, slots=True)
class FetchLimits:
    max_wait_ms: int
    max_bytes: int
    max_partition_bytes: int


class Problem(NamedTuple):
    """Why fetching fails, and since when (loop time). `answered`: the leader itself reported it,
    so it can be reached."""

    why: str
    since: float
    answered: bool


class ReplicaFetcher:
    """Fetches from one leader. `follow` takes effect at once: a fetch that waits is completed
    early, and the next one names the new partitions. Results for a partition that was forgotten,
    or followed again, since the fetch was sent are ignored. So every fetch is answered, however
    many follow each other, and nothing is sent twice. A fetch is given up only if the leader has
    begun another incarnation since."""

    def __init__(
        self,
        leader: int,
        context: FollowerContext,
        peers: Peers,
        limits: FetchLimits,
        rng: random.Random,
        is_syncing: Callable[[Partition], bool],
        session: FollowerSession,
        moves: Receiving,
        digests: DigestReports,
    ) -> None:
        self.digests = digests
        self._leader = leader
        self._context = context
        self._peers = peers
        self._limits = limits
        self._rng = rng
        self._is_syncing = is_syncing
        self._session = session
        self._moves = moves
        self._partitions: dict[ReplicaKey, Partition] = {}
        # Partitions that a move adds, and until when (loop time) some of them are not fetched.
        self._adding: dict[ReplicaKey, Partition] = {}
        self._throttled: dict[ReplicaKey, float] = {}
        self._room_timer: asyncio.TimerHandle | None = None
        # Partitions whose position may differ from the session's; all of them if none is open.
        self._moved: dict[ReplicaKey, None] = {}
        self._held_back: dict[ReplicaKey, HeldBack] = {}
        self._changed = asyncio.Event()
        self._failures = 0
        self._under_way: UnderWay | None = None
        self.unanswered: Unanswered | None = None
        # Loop times: since when each partition is followed, and of the last answer.
        self._followed_since: dict[ReplicaKey, float] = {}
        self._answered_at = -math.inf
        self._problem: Problem | None = None
        self._events = FollowerEvents(leader, context)

    def follow(self, partitions: Iterable[Partition]) -> None:
        now = asyncio.get_running_loop().time()
        for partition in partitions:
            key = partition.key
            self._partitions[key] = partition
            self.digests.follow(partition)
            self._followed_since[key] = now
            self._held_back.pop(key, None)
            self._adding.pop(key, None)
            if self._moves.may_be_bound(partition):
                self._adding[key] = partition
            self._session.tell_again(key)
            self._moved[key] = None
        self._ask_anew()

    def forget(self, partition: Partition) -> None:
        key = partition.key
        self._held_back.pop(key, None)
        self._adding.pop(key, None)
        self._followed_since.pop(key, None)
        self.digests.forget(key)
        if self._partitions.pop(key, None) is not None:
            # The next request reports it; nothing waits for that.
            self._moved[key] = None
            self._changed.set()
        if not self._partitions:
            self.unanswered = None

    def look_again(self, partition: Partition) -> None:
        """The next request sends the partition's position if it differs: its sync has ended, or
        its state has changed within its epoch."""
        key = partition.key
        self._adding.pop(key, None)
        if self._moves.may_be_bound(partition):
            self._adding[key] = partition
        self._moved[key] = None
        self._changed.set()

    def _ask_anew(self) -> None:
        self._changed.set()
        fetch = self._under_way
        if fetch is None:
            return
        target = self._context.address_of(self._leader)
        if target is not None and target[1] != fetch.request.leader_broker_epoch:
            # An incarnation that has ended may never answer, not even early.
            self._under_way = None
            fetch.given_up.reschedule(asyncio.get_running_loop().time())
        elif not fetch.is_hurried:
            fetch.is_hurried = True
            self._peers.hurry(fetch.address, fetch.request)

    def progress_of(self, partition: Partition) -> FollowerState:
        """Returns the state of following this partition."""
        now = asyncio.get_running_loop().time()
        answered = self._answered_at >= self._followed_since.get(partition.key, math.inf)
        held = self._held_back.get(partition.key)
        # A fetch that failed as a whole came after the answer that held this partition back.
        problem = self._problem
        if problem is None and held is not None:
            problem = Problem(held.why, held.since, answered=True)
        return FollowerState(
            leader=self._leader,
            last_answer_ms=self.last_answer_ms if answered else NOT_KNOWN,
            problem=problem.why if problem else "",
            problem_ms=int((now - problem.since) * 1000) if problem else NOT_KNOWN,
            answered=problem is not None and problem.answered,
        )

    @property
    def last_answer_ms(self) -> int:
        """How long ago the leader answered; NOT_KNOWN: it never has."""
        if self._answered_at == -math.inf:
            return NOT_KNOWN
        return int((asyncio.get_running_loop().time() - self._answered_at) * 1000)

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    async def run(self) -> None:
        while True:
            self._changed.clear()
            if self._session.synced and any(map(self._is_syncing, self._moved_and_followed())):
                # The next fetch must report what is on the disk when these syncs are done.
                await self._changed.wait()
                continue
            if self._failures and not await self._reaches():
                await self._wait_for_change(self._retry_delay())
                continue
            # Both calls get one reading: a partition that only the first one still holds back would
            # be waited for without end.
            now = asyncio.get_running_loop().time()
            target = self._context.address_of(self._leader)
            if target is not None:
                self._bind(EpochPair(self._context.broker_epoch, target[1]))
            positions = self._positions(now)
            release = self._next_release(now)
            if target is None or not self._session.has_partitions(positions):
                self.unanswered = None
                await self._wait_for_change(release)
                continue
            for key in positions:
                del self._moved[key]
            self._asks(target[1])
            given_up = asyncio.timeout(None)
            answered = False
            try:
                self._look_for_room_at(min(self._throttled.values(), default=None))
                async with given_up:
                    request = self._next_request(positions, self._max_wait_ms(now))
                    self._under_way = UnderWay(target[0], request, given_up)
                    answered = await self._fetch(target[0], request)
            except TimeoutError:
                if not given_up.expired():
                    raise
                # The next fetch is sent at once.
                self._begin_anew()
                continue
            finally:
                self._under_way = None
                self._look_for_room_at(None)
            if not answered:
                self._begin_anew()
                await self._wait_for_change(self._retry_delay())

    def _asks(self, broker_epoch: int) -> None:
        """Notes since when this incarnation of the leader owes an answer."""
        if self.unanswered is None or self.unanswered.broker_epoch != broker_epoch:
            now = asyncio.get_running_loop().time()
            self.unanswered = Unanswered(broker_epoch, now)

    async def _reaches(self) -> bool:
        """Whether the leader can be reached. After a failure a request names every partition,
        perhaps thousands. It is not built for a leader to which it cannot be sent."""
        target = self._context.address_of(self._leader)
        if target is None or self.is_idle:
            return True
        self._bind(EpochPair(self._context.broker_epoch, target[1]))
        self._asks(target[1])
        try:
            await self._peers.reach(target[0])
        except PeerUnreachableError as error:
            self._unreached(str(error))
            return False
        return True

    def _unreached(self, why: str) -> None:
        self._failed(why, answered=False)
        self._events.unreachable(self._session.lives.leader, why, len(self._partitions))

    def _look_for_room_at(self, time: float | None) -> None:
        """Checks the throttle at `time` instead of ending a long poll then: fetchers share what
        may be received, and another one may have taken it."""
        if self._room_timer is not None:
            self._room_timer.cancel()
        self._room_timer = None
        if time is not None:
            loop = asyncio.get_running_loop()
            self._room_timer = loop.call_at(time, self._look_for_room)

    def _look_for_room(self) -> None:
        held = [self._adding[key] for key in self._throttled if key in self._adding]
        pause_ms = min((self._throttle_pause_ms(partition) for partition in held), default=0)
        if pause_ms:
            self._look_for_room_at(asyncio.get_running_loop().time() + pause_ms / 1000)
        else:
            self._ask_anew()

    def _bind(self, lives: EpochPair) -> None:
        was_open = self._session.is_open
        self._session.bind(lives)
        if was_open and not self._session.is_open:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._session.reset()
        self._moved = dict.fromkeys(self._partitions)

    def _next_request(self, positions: Positions, max_wait_ms: int) -> ReplicaFetchRequest:
        asked = self._session.next(positions)
        lives = self._session.lives
        return ReplicaFetchRequest(
            broker_id=self._context.broker_id,
            broker_epoch=lives.follower,
            leader_broker_epoch=lives.leader,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self._limits.max_bytes,
            entries=self._entries(asked.named),
            session_id=asked.session_id,
            session_sequence=asked.session_sequence,
            synced=self._session.synced,
            forgotten=asked.forgotten,
            now_ms=self._context.wall_ms(),
            digests=self.digests.next(asyncio.get_running_loop().time()),
        )

    async def _fetch(self, address: str, request: ReplicaFetchRequest) -> bool:
        """Sends one fetch. Returns whether the leader answered."""
        lives = self._session.lives
        sent = asyncio.get_running_loop().time()
        try:
            response = await self._peers.replica_fetch(address, request)
        except PeerUnreachableError as error:
            elapsed_ms = int((asyncio.get_running_loop().time() - sent) * 1000)
            if elapsed_ms > request.max_wait_ms + ANSWER_TIMEOUT_MS + STALLED_MIN_MS:
                self._failures += 1
                return False
            self._unreached(str(error))
            return False
        self.unanswered = None
        self._under_way = None
        self._context.heard_clock(self._leader, response.now_ms)
        if response.error is not None:
            if self._failures == 0:
                _log.info("replica_fetch_refused", leader=self._leader, why=response.error.message)
            self._failed(response.error.message, answered=True)
            return False
        if not response.session_id and not response.results and not request.session_id:
            # The leader took this for a late request, which it is not.
            self._failed(f"broker {self._leader} took a fetch for a late one", answered=True)
            return False
        self._failures = 0
        self._problem = None
        self._answered_at = asyncio.get_running_loop().time()
        self._events.reached(lives.leader)
        await self._take(response.results)
        goes_on = self._session.answered(response.session_id, response.results)
        self.digests.answered(response.diverged, self._is_agreed)
        if not goes_on:
            self._begin_anew()
        return True

    def _is_agreed(self, key: ReplicaKey) -> bool:
        """Whether the leader has found that the log agrees with its own."""
        return key in self._partitions and self._session.told(key) is not None

    def _failed(self, why: str, *, answered: bool) -> None:
        self._failures += 1
        since = asyncio.get_running_loop().time()
        if self._problem is not None and self._problem.answered is answered:
            since = self._problem.since
        self._problem = Problem(why, since, answered)

    async def _take(self, results: Sequence[ReplicaFetchResult]) -> None:
        """Applies results. Each is judged by the state of its partition at that moment."""
        if self._held_back:
            # A partition that an answer leaves out has no news, and so no failure.
            answered = {result.replica for result in results}
            for replica in list(self._held_back):
                if replica not in answered and self._session.told(replica) is not None:
                    del self._held_back[replica]
        await in_turns(self._take_one, results)

    def _take_one(self, result: ReplicaFetchResult) -> None:
        partition = self._partitions.get(result.replica)
        asked = self._session.told(result.replica)
        if partition is None or asked is None:
            return
        self._moved[result.replica] = None
        try:
            if result.answer is not None:
                self._follow(partition, asked, result.answer)
                self._held_back.pop(result.replica, None)
            elif result.error is not None:
                self._refused(partition, asked, result)
        except (TidelogError, AppendOrderError) as error:
            # The leader's answer does not fit this log.
            _log.warning("replica_fetch_failed", partition=str(partition.name), why=str(error))
            self._hold_back(result.replica, str(error), is_rejected=True)
        except LogError as error:
            self._context.replica_failed(partition, error)
            self._hold_back(result.replica, str(error))

    def _follow(self, partition: Partition, asked: FetchPosition, answer: FetchAnswer) -> None:
        if answer.diverging is not None:
            end, epoch = partition.log.log_end_offset, partition.log.latest_epoch
        if not partition.follow(asked, answer):
            _log.debug("late_answer_dropped", partition=str(partition.name))
        elif answer.diverging is not None:
            self._events.truncated(partition, end, epoch, Cause.DIVERGED)
        elif answer.batches:
            self.digests.note(partition)
            if self._context.disk:
                self._context.disk.took(partition.key, "written")
        if partition.key in self._adding:
            self._moves.received(partition, sum(len(batch.records) for batch in answer.batches))

    def _refused(
        self, partition: Partition, asked: FetchPosition, result: ReplicaFetchResult
    ) -> None:
        error = result.error
        assert error is not None
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            end, epoch = partition.log.log_end_offset, partition.log.latest_epoch
            if partition.restart_at(asked, result.log_start_offset):
                self._events.truncated(partition, end, epoch, Cause.NO_LONGER_HELD)
            return
        # Fenced, not the leader, or not known there yet: the controller's command is on its way,
        # here or to the leader.
        _log.debug("replica_fetch_refused", partition=str(partition.name), why=error.message)
        self._hold_back(result.replica, error.message)

    def _hold_back(self, key: ReplicaKey, why: str, *, is_rejected: bool = False) -> None:
        before = self._held_back.get(key)
        failures = before.failures + 1 if before else 1
        now = asyncio.get_running_loop().time()
        since = before.since if before and before.is_rejected is is_rejected else now
        release = now + retry_delay_s(failures)
        self._held_back[key] = HeldBack(release, failures, why, since, is_rejected)

    def rejection_of(self, partition: Partition) -> tuple[str, int] | None:
        """Why this follower rejects its leader's data, and for how many milliseconds; or None."""
        held = self._held_back.get(partition.key)
        if held is None or not held.is_rejected:
            return None
        return held.why, int((asyncio.get_running_loop().time() - held.since) * 1000)

    def _moved_and_followed(self) -> Iterable[Partition]:
        for key in self._moved:
            partition = self._partitions.get(key)
            if partition is not None and partition.leader_to_follow == self._leader:
                yield partition

    def _positions(self, now: float) -> dict[ReplicaKey, FetchPosition | None]:
        """Returns positions that may have changed, and those whose delay is over. At most
        MAX_NAMED; the others follow with the next request."""
        for key, held in self._held_back.items():
            if held.release <= now:
                self._moved[key] = None
        self._hold_throttled(now)
        positions: dict[ReplicaKey, FetchPosition | None] = {}
        named = 0
        for key in self._moved:
            position = positions[key] = self._position(key, now)
            named += position is not None
            if named == MAX_NAMED:
                break
        return positions

    def _position(self, key: ReplicaKey, now: float) -> FetchPosition | None:
        partition = self._partitions.get(key)
        held = self._held_back.get(key)
        if partition is None or partition.leader_to_follow != self._leader:
            return None
        if held is not None and held.release > now:
            return None
        if key in self._throttled:
            return None
        return partition.fetch_position()

    def _hold_throttled(self, now: float) -> None:
        """Updates which partitions the throttle holds back. They leave the session as well:
        nothing is to come while there is no room."""
        before, self._throttled = self._throttled, {}
        for key, partition in self._adding.items():
            pause_ms = self._throttle_pause_ms(partition)
            if pause_ms:
                self._throttled[key] = now + pause_ms / 1000
            if (key in before) != (key in self._throttled):
                self._moved[key] = None

    def _throttle_pause_ms(self, partition: Partition) -> int:
        return min(MAX_THROTTLE_PAUSE_MS, self._moves.pause_ms(partition))

    def _entries(self, named: Mapping[ReplicaKey, FetchPosition]) -> list[ReplicaFetchEntry]:
        """Partitions that a move adds share the room that there is; a batch is sent in full."""
        limit = self._limits.max_partition_bytes
        asked_for = 0
        entries = []
        for key, position in named.items():
            adding = self._adding.get(key)
            receivable = None if adding is None else self._moves.receivable_bytes(adding)
            max_bytes = limit
            if receivable is not None:
                max_bytes = max(1, min(limit, receivable - asked_for))
                asked_for += max_bytes
            entries.append(ReplicaFetchEntry(key, position, max_bytes))
        return entries

    def _next_release(self, now: float) -> float | None:
        """Returns the seconds until a partition that is held back may be fetched again."""
        if self._partitions and self._context.address_of(self._leader) is None:
            return MAX_RETRY_DELAY_S
        throttled = [release - now for release in self._throttled.values()]
        coming = [seconds for seconds in (*self._held_for(now), *throttled) if seconds > 0]
        return min(coming) if coming else None

    def _held_for(self, now: float) -> list[float]:
        """Returns the rest of the delay, in seconds, of each partition that failed on its own."""
        return [h.release - now for k, h in self._held_back.items() if k in self._partitions]

    def _max_wait_ms(self, now: float) -> int:
        longest_ms = 0 if self._moved else self._limits.max_wait_ms
        release = min((seconds for seconds in self._held_for(now) if seconds > 0), default=None)
        return longest_ms if release is None else min(longest_ms, int(release * 1000) + 1)

    def _retry_delay(self) -> float:
        return retry_delay_s(self._failures) * self._rng.uniform(0.5, 1.0)

    async def _wait_for_change(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
