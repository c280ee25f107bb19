"""Fetch for followers: notes their positions, and returns news for them or waits for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_OFFSET
from tidelog_broker.core.fetch_messages import (
    NO_SESSION,
    DivergedRange,
    FetchId,
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
    ReportedDigest,
)
from tidelog_broker.core.fetch_sessions import FetchSession, FetchSessions
from tidelog_broker.core.partition.exchange import FetchAnswer
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.replication.move_throttle import MoveThrottle
from tidelog_broker.requests.fetch_wait import (
    MAX_RESPONSE_BYTES,
    ColdFetch,
    Deadline,
    bytes_to_wait_for,
    rotated,
    size_of,
)
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_runtime.clock import Clock
from tidelog_runtime.cooperative import ITEMS_PER_SLICE, QUICK_ITEMS_PER_SLICE, map_yielding

# Called with a follower, the digests that it has reported, and a function for the offset up to
# which its log of a partition agrees; NO_OFFSET: not known. Returns the ranges whose batches the
# follower has to list.
CompareDigests: TypeAlias = Callable[
    [int, Sequence[ReportedDigest], Callable[[ReplicaKey], int]], Sequence[DivergedRange]
]


class ReplicaFetch:
    """Serves the followers of the partitions that this broker leads."""

    def __init__(
        self,
        manager: ReplicaManager,
        purgatory: Purgatory,
        clock: Clock,
        throttle: MoveThrottle,
        cold_reads: ColdReads,
        compare_digests: CompareDigests = lambda *_: (),
    ) -> None:
        self._compare_digests = compare_digests
        self._manager = manager
        self._clock = clock
        self._throttle = throttle
        self._cold_reads = cold_reads
        self.sessions = FetchSessions(purgatory)
        # By follower: of two followers that fetch alternately, each must begin with other
        # partitions too.
        self._turns: Counter[int] = Counter()

    async def handle(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        """Answers with news for the follower.

        Neither requests nor answers grow with the number of idle partitions.
        """
        self._manager.note_peer_clock(request.broker_id, request.now_ms)
        response = await self._respond(request)
        return response._replace(now_ms=self._clock.wall_ms())

    async def _respond(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        if request.leader_broker_epoch < self._manager.broker_epoch:
            return ReplicaFetchResponse(
                TidelogError(
                    ErrorCode.STALE_BROKER_EPOCH,
                    f"broker {self._manager.broker_id} is in broker epoch "
                    f"{self._manager.broker_epoch}; the fetch is for its incarnation "
                    f"{request.leader_broker_epoch}",
                ),
                (),
            )
        session = self.sessions.of(request, self._clock.monotonic_ms())
        if session is None:
            return ReplicaFetchResponse(None, (), NO_SESSION)
        is_answered = False
        diverged: Sequence[DivergedRange] = ()
        try:
            await self._drop_ended()
            urgent = await self._note_positions(session, request)
            diverged = self._compare_digests(
                session.follower, request.digests, session.agreed_offset
            )
            results = await self._serve(session, request, urgent)
            await map_yielding(session.answered, results, QUICK_ITEMS_PER_SLICE)
            is_answered = True
        finally:
            session.serving = False
            if not is_answered or session.id == NO_SESSION:
                # The answer is not sent, so it is not known which state the follower has.
                self.sessions.end(session)
        session_id = NO_SESSION if session.ended else session.id
        return ReplicaFetchResponse(None, results, session_id, diverged=diverged)

    async def _drop_ended(self) -> None:
        """Drops the partitions of ended sessions, before anything new is noted of them."""
        for _ in self.sessions.drop_ended():
            await asyncio.sleep(0)

    def complete_early(self, fetch: FetchId) -> None:
        """Answers the fetch at once, if it waits."""
        self.sessions.complete_early(fetch)

    async def _serve(
        self,
        session: FetchSession,
        request: ReplicaFetchRequest,
        urgent: list[ReplicaFetchResult],
    ) -> list[ReplicaFetchResult]:
        wanted = bytes_to_wait_for(request.min_bytes, request.max_bytes)
        woken = asyncio.Event()
        session.wake = woken.set
        deadline = Deadline(request.max_wait_ms, woken)
        try:
            while True:
                woken.clear()
                over = deadline.over or session.completes_early or session.ended
                session.begin_answer()
                found, size, is_held = await self._collect(session, request.max_bytes, woken)
                failed = any(result.error for result in found)
                if urgent or failed or size >= wanted or over:
                    return [*urgent, *found]
                if is_held:
                    deadline.wake_in(max(1, self._throttle.sending_pause_ms()))
                await woken.wait()
        finally:
            deadline.cancel()

    async def _note_positions(
        self, session: FetchSession, request: ReplicaFetchRequest
    ) -> list[ReplicaFetchResult]:
        """Notes the follower's positions. Returns what must be answered without waiting.

        These are rejections and divergences, and their partitions leave the session. Other tasks
        run in between: the first request of a session names thousands of partitions.
        """
        named = [entry.replica for entry in request.entries]
        # Before the time of this request is noted: it does not leave these partitions out.
        await map_yielding(session.supersede, named, QUICK_ITEMS_PER_SLICE)
        await map_yielding(session.drop, request.forgotten, QUICK_ITEMS_PER_SLICE)
        now_ms = session.time.last_request_ms = self._clock.monotonic_ms()
        entries = [*session.to_recount(frozenset(named), now_ms), *request.entries]
        noted = await map_yielding(partial(self._note, session, now_ms), entries)
        return [result for result in noted if result is not None]

    def _note(
        self, session: FetchSession, now_ms: int, entry: ReplicaFetchEntry
    ) -> ReplicaFetchResult | None:
        if session.ended:
            return None
        log_start = NO_OFFSET
        try:
            partition = self._manager.replica(entry.replica)
            log_start = partition.log.log_start_offset
            diverging = partition.replica_fetch(
                session.follower, session.broker_epoch, entry.position, now_ms, session.time
            )
        except TidelogError as error:
            session.drop(entry.replica)
            return ReplicaFetchResult(entry.replica, None, error, log_start)
        if diverging is None:
            session.record(entry, partition)
            return None
        session.drop(entry.replica)
        answer = FetchAnswer(
            partition.high_watermark, log_start, partition.leader_epoch, (), diverging
        )
        return ReplicaFetchResult(entry.replica, answer, None, log_start)

    async def _collect(
        self, session: FetchSession, max_bytes: int, woken: asyncio.Event
    ) -> tuple[list[ReplicaFetchResult], int, bool]:
        """Returns results, their size, and whether the throttle held something back.

        The other partitions of the fetch do not wait for that. Nor do they wait for reads from the
        disk, which set `woken`.
        """
        replicas = list(session.news)
        self._turns[session.follower] += 1
        budget = min(max_bytes, MAX_RESPONSE_BYTES)
        cold = ColdFetch(self._cold_reads, woken, budget)
        size = 0
        is_held = False
        results = []
        for number, turn in enumerate(rotated(len(replicas), self._turns[session.follower]), 1):
            if number % ITEMS_PER_SLICE == 0:
                await asyncio.sleep(0)
            replica = replicas[turn]
            in_session = session.partitions.get(replica)
            if in_session is None:
                # The session has ended meanwhile.
                continue
            position, max_partition_bytes = in_session.entry.position, in_session.entry.max_bytes
            if position.needs_producers and size >= budget:
                # Producers are sent completely or not at all: with the next answer.
                continue
            log_start = NO_OFFSET
            try:
                partition = self._manager.replica(replica)
                if not partition.has_news(position, in_session.high_watermark):
                    session.news.pop(replica, None)
                    continue
                log_start = partition.log.log_start_offset
                room = min(max_partition_bytes, budget - size)
                sendable = self._throttle.sendable_bytes(partition, session.follower)
                if sendable is not None and position.fetch_offset < partition.log.log_end_offset:
                    if sendable == 0:
                        is_held = True
                        continue
                    room = min(room, sendable)
                answer = cold.read(
                    partial(partition.read_for_follower, position, room), partition.log
                )
                if answer.cold is not None and not answer.batches:
                    continue
            except TidelogError as error:
                results.append(ReplicaFetchResult(replica, None, error, log_start))
            except LogError as error:
                rejection = self._manager.replica_failed(partition, error, "read")
                results.append(ReplicaFetchResult(replica, None, rejection, log_start))
            else:
                self._throttle.sent(partition, session.follower, size_of(answer))
                size += size_of(answer)
                results.append(ReplicaFetchResult(replica, answer, None, log_start))
        return results, size, is_held
