"""Sends sealed batches to their leaders: the I/O around `Accumulator`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidelog.client.accumulator import Accumulator
from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.connections import Connections
from tidelog.client.delivery import Appended, Outcome
from tidelog.client.produce_codec import outcomes_from_wire, request_to_wire
from tidelog.client.producer_identity import GivenIdentity, ProducerIdentity
from tidelog.client.sealed_batch import Group, Request
from tidelog.client.unclean_elections import UncleanElection, UncleanElections
from tidelog.errors import STALE_METADATA, ErrorCode, TidelogError
from tidelog.model import Acks, TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.trace_context import carrying

# An answer may arrive this much later than the time limit of the broker.
ANSWER_GRACE_MS = 1_000
# How often batches are checked for their delivery timeout.
EXPIRY_INTERVAL_MS = 100
# A leader may hang if a request has no answer for this long. Metadata is then polled for newer
# leaders,
UNANSWERED_MS = 1_000
# at this interval, until the request is answered or given up.
UNANSWERED_POLL_MS = 500


@dataclass(slots=True, eq=False)
class _Pending:
    """A request in flight. `open`: the groups that were not given up, by their position in it.
    `deadline_ms`: the next deadline of their batches; None: all have passed."""

    request: Request
    sent_ms: int
    open: dict[int, Group]
    deadline_ms: int | None


class Sender:
    """Sends the batches of one producer.

    - `seal_due(now_ms)`: seals open batches that are due. Returns when to call it again at the
      latest; None: when another batch is opened.
    - `identity`: of an idempotent producer. Its batches may be sent again while their first
      request may still be carried out."""

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: ClusterMetadata,
        connections: Connections,
        clock: Clock,
        *,
        acks: Acks,
        request_timeout_ms: int,
        seal_due: Callable[[int], int | None],
        identity: ProducerIdentity | GivenIdentity | None = None,
        on_unclean_election: Callable[[UncleanElection], None],
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._connections = connections
        self._clock = clock
        self._acks = acks
        self._request_timeout_ms = request_timeout_ms
        self._seal_due = seal_due
        self._identity = identity
        self._elections = UncleanElections()
        self._on_unclean_election = on_unclean_election
        self._wake = asyncio.Event()
        self._requests: dict[asyncio.Task[None], _Pending] = {}
        self._given_up: dict[asyncio.Task[None], None] = {}
        self._loop_task: asyncio.Task[None] | None = None
        self._next_expiry_ms = 0
        self._next_check_ms = 0

    def start(self) -> None:
        self._loop_task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Wakes the loop when something can be sent that could not be before."""
        self._wake.set()

    def metadata_changed(self) -> None:
        for election in self._elections.new_elections(self._metadata.leader):
            self._on_unclean_election(election)
        self._fail_removed(self._accumulator.partitions())
        self._elections.forget_removed(self._metadata.removal_error)
        self.wake()

    async def stop(self, error: TidelogError) -> None:
        """Stops, and fails all records that are not delivered yet with the error."""
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)
        if self._identity is not None:
            await self._identity.stop()
        self._accumulator.fail_all(error)
        requests = dict(self._requests)
        for task in requests:
            task.cancel()
        await asyncio.gather(*requests, *self._given_up, return_exceptions=True)
        for task, pending in requests.items():
            if task.cancelled():
                closed = TidelogError(
                    error.code,
                    f"{error.message}; whether they were appended is not known",
                    outcome_unknown=True,
                )
                self._all_failed(pending, closed, stale=False)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            try:
                pause_ms = self._step()
            except Exception as error:  # reported to the waiters of these records
                fault = TidelogError(ErrorCode.INTERNAL, f"the client failed: {error!r}")
                fault.__cause__ = error
                self._accumulator.fail_all(fault)
                pause_ms = EXPIRY_INTERVAL_MS
            timer = None
            if pause_ms is not None:
                timer = loop.call_later(pause_ms / 1000, self._wake.set)
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    def _step(self) -> int | None:
        """Does all that is due now. Returns the pause until the next step in milliseconds; None:
        no limit."""
        now_ms = self._clock.monotonic_ms()
        due: list[int | None] = []
        if self._identity is not None:
            due.append(self._give_up_superseded(now_ms))
        seal_ms = self._seal_due(now_ms)
        if not self._accumulator.unsettled:
            return None if seal_ms is None else max(seal_ms - now_ms, 1)
        due.append(seal_ms)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + EXPIRY_INTERVAL_MS
            self._accumulator.expire(now_ms)
            self._expire_in_flight(now_ms)
        due.append(self._next_expiry_ms)
        while requests := self._accumulator.drain(now_ms, self._metadata.leader):
            for request in requests:
                groups = dict(enumerate(request.groups))
                pending = _Pending(request, now_ms, groups, _next_deadline_ms(request.groups))
                task = asyncio.create_task(self._send(pending))
                self._requests[task] = pending
                task.add_done_callback(self._done)
        if self._identity is not None:
            self._identity.step(now_ms)
        if self._accumulator.wants_metadata(self._metadata.leader):
            self._fail_removed(self._accumulator.waiting())
            self._metadata.refresh_soon()
        due.append(self._accumulator.next_retry_ms(now_ms))
        return max(min(ms for ms in due if ms is not None) - now_ms, 1)

    def _fail_removed(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if self._metadata.leader(partition) is not None:
                continue
            if (error := self._metadata.removal_error(partition)) is not None:
                self._accumulator.fail_removed(partition, error)
            else:
                # A batch that is sealed late may be for a topic that metadata has forgotten.
                self._metadata.want(partition.topic)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._requests.pop(task, None)
        self._given_up.pop(task, None)

    def _give_up_superseded(self, now_ms: int) -> int | None:
        """Gives up requests that old leaders have not answered for UNANSWERED_MS, if there are
        newer leaders. The batches go there with their sequences. Returns when to check again."""
        due: list[int] = []
        for task, pending in list(self._requests.items()):
            if task.done():  # answered a moment ago, and its groups have their results
                continue
            if pending.sent_ms + UNANSWERED_MS > now_ms:
                due.append(pending.sent_ms + UNANSWERED_MS)
                continue
            for index, group in list(pending.open.items()):
                leader = self._metadata.leader(group.partition)
                if leader is not None and leader.supersedes(group.leader):
                    del pending.open[index]
                    hangs = TidelogError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"{group.leader.address} had not answered when leader epoch "
                        f"{leader.leader_epoch} of {group.partition} began",
                    )
                    self._accumulator.failed(group, hangs, now_ms, stale=False)
            if pending.open:
                if now_ms >= self._next_check_ms:
                    self._next_check_ms = now_ms + UNANSWERED_POLL_MS
                    self._metadata.refresh_soon()
                due.append(self._next_check_ms)
            else:
                del self._requests[task]
                self._given_up[task] = None
                self._accumulator.finish(pending.request)
                task.cancel()
        return min(due, default=None)

    def _expire_in_flight(self, now_ms: int) -> None:
        """Fails the batches in flight beyond their deadline. Batches with later deadlines may share
        their request, which therefore continues."""
        for task, pending in self._requests.items():
            if task.done() or pending.deadline_ms is None or pending.deadline_ms > now_ms:
                continue
            for group in pending.open.values():
                self._accumulator.expire_in_flight(group, now_ms)
            pending.deadline_ms = _next_deadline_ms(pending.open.values(), now_ms)

    async def _send(self, pending: _Pending) -> None:
        request = pending.request
        try:
            wire = request_to_wire(request, self._acks, self._request_timeout_ms)
            with carrying(request.trace_context):
                answer = await self._connections.broker(request.leader.address).produce(
                    wire, self._answer_timeout_ms(request)
                )
            outcomes = outcomes_from_wire(request, answer)
        except UnreachableError as error:
            unknown = TidelogError(ErrorCode.REQUEST_TIMED_OUT, str(error))
            self._all_failed(pending, unknown, stale=True)
        except TidelogError as error:
            self._all_failed(pending, error, stale=False)
        except Exception as error:  # reported to the waiters of these records
            fault = TidelogError(ErrorCode.INTERNAL, f"the client failed to send: {error!r}")
            fault.__cause__ = error
            self._all_failed(pending, fault, stale=False)
        else:
            self._accumulator.finish(request)
            for index, (group, outcome) in enumerate(outcomes):
                if index in pending.open:
                    self._landed(group, outcome)
        self.wake()

    def _answer_timeout_ms(self, request: Request) -> int:
        """Returns the time limit: at most what is left of the batches' delivery timeouts. Batches
        with earlier deadlines than others expire in flight."""
        deadline_ms = max(b.deadline_ms for group in request.groups for b in group.batches)
        left_ms = deadline_ms - self._clock.monotonic_ms()
        return max(min(self._request_timeout_ms + ANSWER_GRACE_MS, left_ms), 1)

    def _all_failed(self, pending: _Pending, error: TidelogError, *, stale: bool) -> None:
        self._accumulator.finish(pending.request)
        now_ms = self._clock.monotonic_ms()
        for group in pending.open.values():
            self._accumulator.failed(group, error, now_ms, stale=stale)

    def _landed(self, group: Group, outcome: Outcome) -> None:
        if isinstance(outcome, Appended):
            self._accumulator.appended(group, outcome)
            self._metadata.led(group.partition, group.leader.topic_id, outcome.leader_epoch)
            records = sum(batch.encoded.record_count for batch in group.batches)
            if self._acks is Acks.ALL:
                self._elections.reached(
                    group.partition,
                    group.leader.topic_id,
                    outcome.leader_epoch,
                    outcome.base_offset + records,
                )
            return
        stale = outcome.code in STALE_METADATA
        if outcome.leader is not None and self._metadata.apply_hint(
            group.partition, group.leader.topic_id, outcome.leader
        ):
            # The hint is used at once; only metadata says how the leader was elected.
            self._metadata.refresh_soon()
        self._accumulator.failed(group, outcome, self._clock.monotonic_ms(), stale=stale)


def _next_deadline_ms(groups: Iterable[Group], after_ms: int = -1) -> int | None:
    return min(
        (b.deadline_ms for group in groups for b in group.batches if b.deadline_ms > after_ms),
        default=None,
    )
