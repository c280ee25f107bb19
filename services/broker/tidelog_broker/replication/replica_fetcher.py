"""Follows one leader. One long-polled fetch at a time carries every partition that this broker
follows there (but see `fetchers`), and names those that have news."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Sequence

import structlog

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import NOT_KNOWN, FollowerState
from tidelog.state_changes.event import Cause
from tidelog_broker.core.fetch_messages import (
    ReplicaFetchRequest,
    ReplicaFetchResult,
)
from tidelog_broker.core.follower_session import EpochPair, FollowerSession, Positions
from tidelog_broker.core.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.log_errors import AppendOrderError, LogError
from tidelog_broker.replication.digest_reports import DigestReports
from tidelog_broker.replication.fetch_state import (
    MAX_RETRY_DELAY_S,
    FetchLimits,
    InFlightFetch,
    PartitionBackoff,
    Problem,
    UnansweredFetch,
    retry_delay_s,
)
from tidelog_broker.replication.follower_context import FollowerContext
from tidelog_broker.replication.follower_events import FollowerEvents
from tidelog_broker.replication.move_throttle import AddedReplicas, ReceiveThrottle
from tidelog_broker.replication.transport import ANSWER_TIMEOUT_MS, Peers, PeerUnreachableError
from tidelog_runtime.cooperative import map_yielding

# Partitions whose position one request names. More of them need several requests, of which only the
# last one waits: neither end works for more than some milliseconds without a pause.
MAX_NAMED = 2_000
# A fetch that ends this long after its timeout ran in a stalled process: its answer may have come
# meanwhile, and the next fetch will show (rule `quiet-partition-reports-its-end`).
STALLED_MIN_MS = 1_000

_log = structlog.get_logger()


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
        moves: ReceiveThrottle,
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
        self._added = AddedReplicas(moves)
        self._partitions: dict[ReplicaKey, Partition] = {}
        self._throttle_timer: asyncio.TimerHandle | None = None
        # Partitions whose position may differ from the session's; all of them if none is open.
        self._moved: dict[ReplicaKey, None] = {}
        self._backoffs: dict[ReplicaKey, PartitionBackoff] = {}
        self._changed = asyncio.Event()
        self._failures = 0
        self._in_flight: InFlightFetch | None = None
        self.unanswered: UnansweredFetch | None = None
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
            self._backoffs.pop(key, None)
            self._added.update(partition)
            self._session.renew(key)
            self._moved[key] = None
        self._complete_waiting_fetch()

    def forget(self, partition: Partition) -> None:
        key = partition.key
        self._backoffs.pop(key, None)
        self._added.forget(key)
        self._followed_since.pop(key, None)
        self.digests.forget(key)
        if self._partitions.pop(key, None) is not None:
            # The next request reports it; nothing waits for that.
            self._moved[key] = None
            self._changed.set()
        if not self._partitions:
            self.unanswered = None

    def resend_position(self, partition: Partition) -> None:
        """The next request sends the partition's position if it differs: its sync has ended, or
        its state has changed within its epoch."""
        key = partition.key
        self._added.update(partition)
        self._moved[key] = None
        self._changed.set()

    def _complete_waiting_fetch(self) -> None:
        self._changed.set()
        fetch = self._in_flight
        if fetch is None:
            return
        target = self._context.address_of(self._leader)
        if target is not None and target[1] != fetch.request.leader_broker_epoch:
            # An incarnation that has ended may never answer, not even early.
            self._in_flight = None
            fetch.abort_timeout.reschedule(asyncio.get_running_loop().time())
        elif not fetch.is_completed_early:
            fetch.is_completed_early = True
            self._peers.complete_early(fetch.address, fetch.request)

    def progress_of(self, partition: Partition) -> FollowerState:
        """Returns the state of following this partition."""
        now = asyncio.get_running_loop().time()
        answered = self._answered_at >= self._followed_since.get(partition.key, math.inf)
        held = self._backoffs.get(partition.key)
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
            if self._failures and not await self._is_reachable():
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
            self._note_request(target[1])
            abort_timeout = asyncio.timeout(None)
            answered = False
            try:
                self._schedule_throttle_check(min(self._added.paused_until.values(), default=None))
                async with abort_timeout:
                    request = self._next_request(positions, self._max_wait_ms(now))
                    self._in_flight = InFlightFetch(target[0], request, abort_timeout)
                    answered = await self._fetch(target[0], request)
            except TimeoutError:
                if not abort_timeout.expired():
                    raise
                # The next fetch is sent at once.
                self._restart_session()
                continue
            finally:
                self._in_flight = None
                self._schedule_throttle_check(None)
            if not answered:
                self._restart_session()
                await self._wait_for_change(self._retry_delay())

    def _note_request(self, broker_epoch: int) -> None:
        """Notes since when this incarnation of the leader owes an answer."""
        if self.unanswered is None or self.unanswered.broker_epoch != broker_epoch:
            now = asyncio.get_running_loop().time()
            self.unanswered = UnansweredFetch(broker_epoch, now)

    async def _is_reachable(self) -> bool:
        """Whether the leader can be reached. After a failure a request names every partition,
        perhaps thousands. It is not built for a leader to which it cannot be sent."""
        target = self._context.address_of(self._leader)
        if target is None or self.is_idle:
            return True
        self._bind(EpochPair(self._context.broker_epoch, target[1]))
        self._note_request(target[1])
        try:
            await self._peers.reach(target[0])
        except PeerUnreachableError as error:
            self._note_unreachable(str(error))
            return False
        return True

    def _note_unreachable(self, why: str) -> None:
        self._failed(why, answered=False)
        self._events.unreachable(self._session.epochs.leader, why, len(self._partitions))

    def _schedule_throttle_check(self, time: float | None) -> None:
        """Checks the throttle at `time` instead of ending a long poll then: fetchers share what
        may be received, and another one may have taken it."""
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        self._throttle_timer = None
        if time is not None:
            loop = asyncio.get_running_loop()
            self._throttle_timer = loop.call_at(time, self._check_throttle)

    def _check_throttle(self) -> None:
        pause_ms = self._added.pause_ms
        if pause_ms:
            self._schedule_throttle_check(asyncio.get_running_loop().time() + pause_ms / 1000)
        else:
            self._complete_waiting_fetch()

    def _bind(self, epochs: EpochPair) -> None:
        was_open = self._session.is_open
        self._session.bind(epochs)
        if was_open and not self._session.is_open:
            self._restart_session()

    def _restart_session(self) -> None:
        self._session.reset()
        self._moved = dict.fromkeys(self._partitions)

    def _next_request(self, positions: Positions, max_wait_ms: int) -> ReplicaFetchRequest:
        asked = self._session.next(positions)
        epochs = self._session.epochs
        return ReplicaFetchRequest(
            broker_id=self._context.broker_id,
            broker_epoch=epochs.follower,
            leader_broker_epoch=epochs.leader,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self._limits.max_bytes,
            entries=self._added.entries(asked.named, self._limits.max_partition_bytes),
            session_id=asked.session_id,
            session_sequence=asked.session_sequence,
            synced=self._session.synced,
            forgotten=asked.forgotten,
            now_ms=self._context.wall_ms(),
            digests=self.digests.next(asyncio.get_running_loop().time()),
        )

    async def _fetch(self, address: str, request: ReplicaFetchRequest) -> bool:
        """Sends one fetch. Returns whether the leader answered."""
        epochs = self._session.epochs
        sent = asyncio.get_running_loop().time()
        try:
            response = await self._peers.replica_fetch(address, request)
        except PeerUnreachableError as error:
            elapsed_ms = int((asyncio.get_running_loop().time() - sent) * 1000)
            if elapsed_ms > request.max_wait_ms + ANSWER_TIMEOUT_MS + STALLED_MIN_MS:
                self._failures += 1
                return False
            self._note_unreachable(str(error))
            return False
        self.unanswered = None
        self._in_flight = None
        self._context.note_peer_clock(self._leader, response.now_ms)
        if response.error is not None:
            if self._failures == 0:
                _log.info("replica_fetch_refused", leader=self._leader, why=response.error.message)
            self._failed(response.error.message, answered=True)
            return False
        if not response.session_id and not response.results and not request.session_id:
            # The leader took this for a late request, which it is not.
            self._failed(f"broker {self._leader} treated a fetch as a late one", answered=True)
            return False
        self._failures = 0
        self._problem = None
        self._answered_at = asyncio.get_running_loop().time()
        self._events.reached(epochs.leader)
        await self._apply(response.results)
        goes_on = self._session.answered(response.session_id, response.results)
        self.digests.answered(response.diverged, self._is_agreed)
        if not goes_on:
            self._restart_session()
        return True

    def _is_agreed(self, key: ReplicaKey) -> bool:
        """Whether the leader has found that the log agrees with its own."""
        return key in self._partitions and self._session.sent_position(key) is not None

    def _failed(self, why: str, *, answered: bool) -> None:
        self._failures += 1
        since = asyncio.get_running_loop().time()
        if self._problem is not None and self._problem.answered is answered:
            since = self._problem.since
        self._problem = Problem(why, since, answered)

    async def _apply(self, results: Sequence[ReplicaFetchResult]) -> None:
        """Applies results. Each is judged by the state of its partition at that moment."""
        if self._backoffs:
            # A partition that an answer leaves out has no news, and so no failure.
            answered = {result.replica for result in results}
            for replica in list(self._backoffs):
                if replica not in answered and self._session.sent_position(replica) is not None:
                    del self._backoffs[replica]
        await map_yielding(self._apply_one, results)

    def _apply_one(self, result: ReplicaFetchResult) -> None:
        partition = self._partitions.get(result.replica)
        asked = self._session.sent_position(result.replica)
        if partition is None or asked is None:
            return
        self._moved[result.replica] = None
        try:
            if result.answer is not None:
                self._follow(partition, asked, result.answer)
                self._backoffs.pop(result.replica, None)
            elif result.error is not None:
                self._handle_error(partition, asked, result)
        except (TidelogError, AppendOrderError) as error:
            # The leader's answer does not fit this log.
            _log.warning("replica_fetch_failed", partition=str(partition.name), why=str(error))
            self._back_off(result.replica, str(error), is_rejected=True)
        except LogError as error:
            self._context.replica_failed(partition, error)
            self._back_off(result.replica, str(error))

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
        self._added.received(partition, answer.batches)

    def _handle_error(
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
        self._back_off(result.replica, error.message)

    def _back_off(self, key: ReplicaKey, why: str, *, is_rejected: bool = False) -> None:
        before = self._backoffs.get(key)
        failures = before.failures + 1 if before else 1
        now = asyncio.get_running_loop().time()
        since = before.since if before and before.is_rejected is is_rejected else now
        release = now + retry_delay_s(failures)
        self._backoffs[key] = PartitionBackoff(release, failures, why, since, is_rejected)

    def rejection_of(self, partition: Partition) -> tuple[str, int] | None:
        """Why this follower rejects its leader's data, and for how many milliseconds; or None."""
        held = self._backoffs.get(partition.key)
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
        for key, held in self._backoffs.items():
            if held.release <= now:
                self._moved[key] = None
        # A paused partition leaves the session as well: nothing is to come while there is no room.
        self._moved.update(dict.fromkeys(self._added.refresh(now)))
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
        held = self._backoffs.get(key)
        if partition is None or partition.leader_to_follow != self._leader:
            return None
        if held is not None and held.release > now:
            return None
        if key in self._added.paused_until:
            return None
        return partition.fetch_position()

    def _next_release(self, now: float) -> float | None:
        """Returns the seconds until a partition that is held back may be fetched again."""
        if self._partitions and self._context.address_of(self._leader) is None:
            return MAX_RETRY_DELAY_S
        throttled = [release - now for release in self._added.paused_until.values()]
        coming = [
            seconds for seconds in (*self._remaining_backoffs(now), *throttled) if seconds > 0
        ]
        return min(coming) if coming else None

    def _remaining_backoffs(self, now: float) -> list[float]:
        """Returns the rest of the delay, in seconds, of each partition that failed on its own."""
        return [h.release - now for k, h in self._backoffs.items() if k in self._partitions]

    def _max_wait_ms(self, now: float) -> int:
        longest_ms = 0 if self._moved else self._limits.max_wait_ms
        release = min(
            (seconds for seconds in self._remaining_backoffs(now) if seconds > 0), default=None
        )
        return longest_ms if release is None else min(longest_ms, int(release * 1000) + 1)

    def _retry_delay(self) -> float:
        return retry_delay_s(self._failures) * self._rng.uniform(0.5, 1.0)

    async def _wait_for_change(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
