"""A broker in this process, for unit tests of programs that use Tidelog.

    def test_storms_are_counted():
        with MemoryBroker() as broker, SyncProducer(broker.bootstrap) as producer:
            SyncAdmin(broker.bootstrap).create_topic("sea")
            producer.send_and_wait("sea", b"storm")
            assert count_storms(broker.bootstrap, "sea") == 1

It starts within milliseconds and keeps everything in memory. The program's own clients connect to
it, and the code of brokers serves them, so that offsets, keys, headers, timestamps, sequences,
limits and errors are those of a cluster (`tests/contract/client_contract.py` runs on
both).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc.aio

from tidelog.client.loop_thread import LoopCall, LoopThread
from tidelog.model import TopicPartition
from tidelog.rpc.channels import new_server
from tidelog.v1 import admin_pb2_grpc, broker_pb2_grpc

if TYPE_CHECKING:
    from tidelog.testing.memory.memory_cluster import MemoryCluster

_Result = TypeVar("_Result")

DEFAULT_MAX_BYTES = 64 << 20
# A server closes after this time even if clients still wait for answers.
CLOSE_GRACE_S = 0.05


class MemoryBroker:
    """One broker, which leads every partition alone and also answers as the controller.

    - `max_bytes`: limit of all compressed records together; a send beyond it fails with
      INVALID_REQUEST. 1,000 partitions is the limit of all topics together.

    What it does not do: replicate, elect leaders, die or restart, store anything on a disk, remove
    old records by time or size (`remove_before` does), and whatever manages brokers
    (INVALID_REQUEST). `durability`, `min_insync_replicas` and `retention_ms` of topics are accepted
    and have no effect. Such tests need the fixture `tidelog_cluster`.

    It runs in a thread of its own and listens on a port of the loopback interface, so it serves
    clients with and without async, of this process and of others.
    """

    def __init__(self, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}; give at least 1")
        self._max_bytes = max_bytes
        self._thread: LoopThread | None = None
        self._server: grpc.aio.Server | None = None
        self._cluster: MemoryCluster | None = None
        self._address = ""

    def start(self) -> Self:
        """Starts an empty broker. Raises `RuntimeError` if it runs already."""
        if self._thread is not None:
            raise RuntimeError("this memory broker runs already; make another one")
        self._thread = LoopThread()
        try:
            self._run(self._start)
        except BaseException:
            self.close()
            raise
        return self

    async def _start(self) -> None:
        # Otherwise gRPC closes its queue with the last server or client of the process, and logs an
        # error in the event loop that is just reading from it.
        grpc.aio.init_grpc_aio()
        # Imported here: they belong to `tidelog-services`, and take most of the first start.
        from tidelog.testing.memory.memory_admin import MemoryAdmin
        from tidelog.testing.memory.memory_cluster import MemoryCluster

        self._server = server = new_server()
        port = server.add_insecure_port("127.0.0.1:0")
        self._address = f"127.0.0.1:{port}"
        self._cluster = MemoryCluster(self._address, self._max_bytes)
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(self._cluster.service(), server)
        # `MemoryAdmin` gets the methods that reject their requests after its definition.
        admin = MemoryAdmin(self._cluster)  # type: ignore[abstract]
        admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
        await server.start()

    def close(self) -> None:
        """Ends it with all its records. Does nothing if it does not run."""
        thread = self._thread
        if thread is None:
            return
        try:
            if self._server is not None:
                self._run(self._stop)
        finally:
            self._thread = self._server = self._cluster = None
            thread.stop()
            thread.join()

    async def _stop(self) -> None:
        assert self._server is not None
        await self._server.stop(CLOSE_GRACE_S)

    @property
    def bootstrap(self) -> str:
        """The address for `Producer`, `Consumer` and `Admin`. Raises `RuntimeError` unless the
        broker runs."""
        self._running()
        return self._address

    def remove_before(self, topic: str, partition: int, offset: int) -> None:
        """Removes the records before an offset, as retention does. Readers that are behind get
        OFFSET_OUT_OF_RANGE. Raises UNKNOWN_TOPIC_OR_PARTITION and INVALID_REQUEST."""
        name = TopicPartition(topic, partition)

        async def remove() -> None:
            self._running().remove_before(name, offset)

        self._run(remove)

    def _running(self) -> MemoryCluster:
        if self._cluster is None:
            raise RuntimeError("the memory broker does not run; use it as a context, or start it")
        return self._cluster

    def _run(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """Runs work on the broker's event loop."""
        if self._thread is None:
            self._running()
            raise AssertionError("a broker that runs has a thread")
        call: LoopCall[_Result] = LoopCall(work())
        self._thread.submit(call)
        return call.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
