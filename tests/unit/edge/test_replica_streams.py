"""Replica fetches over gRPC: a server and a client in one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from tidelog.rpc.channels import new_server
from tidelog.v1 import replica_pb2 as pb
from tidelog.v1 import replica_pb2_grpc
from tidelog_broker.edge import replica_codec
from tidelog_broker.edge.replica_client import GrpcPeers
from tidelog_broker.edge.replica_service import ReplicaService
from tidelog_broker.replication.transport import (
    FetchId,
    PeerUnreachableError,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from tidelog_runtime.cooperative import ITEMS_PER_SLICE

PATIENCE_SECONDS = 20.0
GRACE_SECONDS = 60.0


def request_by(follower: int, sequence: int = 0) -> ReplicaFetchRequest:
    return ReplicaFetchRequest(
        follower, 0, 0, 500, 1, 1, (), session_id=follower, session_sequence=sequence
    )


class Leader:
    """Answers when the test says so, or when a fetch is completed early; `stop` fails if
    anything delays it."""

    def __init__(self) -> None:
        self.completed_early: list[tuple[int, int]] = []
        self.stopped = asyncio.Event()
        self.asked: list[int] = []
        self.came = asyncio.Semaphore(0)
        self.may_answer = asyncio.Event()
        self.server = new_server()
        replica_pb2_grpc.add_ReplicaServiceServicer_to_server(
            self.service(),
            self.server,
        )
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def service(self) -> replica_pb2_grpc.ReplicaServiceServicer:
        return ReplicaService(self.answer, self.complete_early, self.stopped)

    async def answer(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        self.asked.append(request.broker_id)
        self.came.release()
        await self.may_answer.wait()
        return ReplicaFetchResponse(None, (), request.session_sequence)

    def complete_early(self, fetch: FetchId) -> None:
        self.completed_early.append((fetch.session_id, fetch.session_sequence))
        self.may_answer.set()

    async def stop(self) -> None:
        self.stopped.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.server.stop(GRACE_SECONDS)


class _OlderService(replica_pb2_grpc.ReplicaServiceServicer):
    """Answers messages strictly in order; the unknown field is lost."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    async def ReplicaFetch(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.ReplicaFetchRequest],
        context: object,  # noqa: ARG002
    ) -> AsyncIterator[pb.ReplicaFetchResponse]:
        newest = 0
        async for request in request_iterator:
            if request.session_sequence <= newest:
                yield pb.ReplicaFetchResponse()  # The answer comes late.
                continue
            newest = request.session_sequence
            answer = await self._leader.answer(await replica_codec.request_from_wire(request))
            yield pb.ReplicaFetchResponse(session_id=answer.session_id)


class OlderLeader(Leader):
    def service(self) -> replica_pb2_grpc.ReplicaServiceServicer:
        return _OlderService(self)

    async def stop(self) -> None:
        await self.server.stop(None)


@asynccontextmanager
async def served(of: type[Leader] = Leader) -> AsyncIterator[tuple[Leader, GrpcPeers]]:
    leader, peers = of(), GrpcPeers()
    await leader.server.start()
    try:
        yield leader, peers
        await leader.stop()
    finally:
        await peers.close()
        await leader.server.stop(None)


async def test_an_idle_stream_does_not_delay_shutdown() -> None:
    async with served() as (leader, peers):
        leader.may_answer.set()
        await peers.replica_fetch(leader.address, request_by(2))


async def test_a_reached_leader_is_called_on_the_same_stream() -> None:
    async with served() as (leader, peers):
        await peers.reach(leader.address)
        await peers.reach(leader.address)
        leader.may_answer.set()
        await peers.replica_fetch(leader.address, request_by(2))
        (peer,) = peers._peers.values()
        assert len(peer._idle) == 1


async def test_a_leader_that_refuses_connections_is_not_reached() -> None:
    async with served() as (leader, peers):
        pass
    peers = GrpcPeers()
    with pytest.raises(PeerUnreachableError, match=leader.address):
        await peers.reach(leader.address)
    await peers.close()


async def test_a_fetch_that_waits_for_data_does_not_delay_shutdown() -> None:
    async with served() as (leader, peers):
        fetch = asyncio.create_task(peers.replica_fetch(leader.address, request_by(2)))
        await leader.came.acquire()
    with suppress(PeerUnreachableError):
        await fetch


async def test_a_fetch_on_a_closed_channel_fails_and_cancels_no_task() -> None:
    """The end of a leader and that of its follower's channel may come in either order."""
    async with served() as (leader, peers):
        fetch = asyncio.create_task(peers.replica_fetch(leader.address, request_by(2)))
        await leader.came.acquire()
        await peers.close()
        with pytest.raises(PeerUnreachableError, match="the channel was closed"):
            await fetch


async def test_an_abandoned_fetch_is_cancelled() -> None:
    async with served() as (leader, peers):
        fetch = asyncio.create_task(peers.replica_fetch(leader.address, request_by(2)))
        await leader.came.acquire()
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch


async def test_a_fetch_completed_early_is_answered_and_so_are_later_ones() -> None:
    async with served() as (leader, peers):
        for sequence in (1, 2, 3):
            leader.may_answer.clear()
            request = request_by(2, sequence)
            fetch = asyncio.create_task(peers.replica_fetch(leader.address, request))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await leader.came.acquire()
                peers.complete_early(leader.address, request)
                assert (await fetch).session_id == sequence
    assert leader.completed_early == [(2, 1), (2, 2), (2, 3)]
    assert leader.asked == [2, 2, 2]


async def test_a_fetch_can_be_completed_early_before_it_is_sent() -> None:
    async with served() as (leader, peers):
        request = request_by(2, 1)
        fetch = asyncio.create_task(peers.replica_fetch(leader.address, request))
        await asyncio.sleep(0)
        assert leader.asked == []
        peers.complete_early(leader.address, request)
        peers.complete_early(leader.address, request)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await fetch).session_id == 1
    assert leader.completed_early == [(2, 1)]


async def test_a_fetch_completed_early_while_it_is_read_does_not_wait() -> None:
    """No handler serves it yet, so none can be notified."""
    many = [pb.ReplicaFetchPartition(partition=number) for number in range(ITEMS_PER_SLICE + 1)]
    waits_ms: list[int] = []

    async def answer(request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        waits_ms.append(request.max_wait_ms)
        return ReplicaFetchResponse(None, ())

    async def requests() -> AsyncIterator[pb.ReplicaFetchRequest]:
        yield pb.ReplicaFetchRequest(partitions=many, max_wait_ms=500)
        yield pb.ReplicaFetchRequest(hurry=True)
        yield pb.ReplicaFetchRequest(partitions=many, max_wait_ms=500, session_sequence=1)

    service = ReplicaService(answer, lambda _: None, asyncio.Event())
    answers = [answer async for answer in service.ReplicaFetch(requests(), cast(Any, None))]
    assert (len(answers), waits_ms) == (2, [0, 500])


async def test_early_completion_of_an_answered_fetch_sends_nothing() -> None:
    async with served() as (leader, peers):
        leader.may_answer.set()
        for sequence in (1, 2):
            request = request_by(2, sequence)
            assert (await peers.replica_fetch(leader.address, request)).session_id == sequence
            peers.complete_early(leader.address, request)
    assert leader.completed_early == []


async def test_an_older_leader_answers_in_its_time_and_answers_stay_matched() -> None:
    async with served(OlderLeader) as (leader, peers):
        for sequence in (1, 2, 3):
            leader.may_answer.clear()
            request = request_by(2, sequence)
            fetch = asyncio.create_task(peers.replica_fetch(leader.address, request))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await leader.came.acquire()
                peers.complete_early(leader.address, request)
                leader.may_answer.set()
                assert (await fetch).session_id == sequence
    assert leader.asked == [2, 2, 2]


async def test_shutdown_does_not_interrupt_the_writing_of_an_answer() -> None:
    """gRPC would forget the call without ending it."""
    stopped, written = asyncio.Event(), asyncio.Event()

    async def answer(_: ReplicaFetchRequest) -> ReplicaFetchResponse:
        return ReplicaFetchResponse(None, ())

    async def requests() -> AsyncIterator[pb.ReplicaFetchRequest]:
        yield pb.ReplicaFetchRequest()
        await asyncio.Event().wait()

    async def serve() -> list[pb.ReplicaFetchResponse]:
        """Serves like gRPC, with a write that is done when the test says so."""
        answers = []
        async for response in service.ReplicaFetch(requests(), None):  # type: ignore[arg-type]
            answers.append(response)
            writing.set()
            await written.wait()
        return answers

    service = ReplicaService(answer, lambda _: None, stopped)
    writing = asyncio.Event()
    serving = asyncio.create_task(serve())
    await writing.wait()
    stopped.set()
    for _ in range(3):
        await asyncio.sleep(0)
    written.set()
    assert len(await serving) == 1


async def test_concurrent_fetches_have_separate_streams() -> None:
    async with served() as (leader, peers):
        fetches = [
            asyncio.create_task(peers.replica_fetch(leader.address, request_by(follower)))
            for follower in (2, 3)
        ]
        for _ in fetches:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await leader.came.acquire()
        leader.may_answer.set()
        await asyncio.gather(*fetches)
    assert sorted(leader.asked) == [2, 3]
