"""A production controller over the in-memory store, and its three interfaces: the gRPC client,
the REST gateway and the commands. Brokers acknowledge everything and never catch up."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import httpx
from typer.testing import CliRunner

from doubles.memory_store import MemoryStore
from tidelog.admin_messages import Move
from tidelog.cli.__main__ import app as commands
from tidelog.cli.session import Session
from tidelog.client import Admin
from tidelog.errors import TidelogError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.rpc.channels import new_server
from tidelog.v1.admin_pb2_grpc import add_AdminServiceServicer_to_server
from tidelog_admin_api.app import create_app
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.dependencies import Dependencies
from tidelog_controller.edge.admin import AdminServicer
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    decode_leader_and_isr,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Delete, ModRevision, Put, Transaction
from unit.admin_api.fake_operations import (
    FakeConsumer,
    FakeEvents,
    FakeProducer,
    FakePublished,
)
from unit.admin_api.fakes import FakeClock, FakeExplains, FakeStates
from unit.client.fake_broker import FakeCluster
from unit.controller.shell_fakes import (
    KEYS,
    ControllerProcess,
    FakeNetwork,
    broker_address,
    register,
    until,
)

T = TypeVar("T")
WAIT_SECONDS = 60
BROKERS = (1, 2, 3)
# This broker held all replicas of topic "reef" and has departed.
LOST_BROKER = 4


class Rejection(NamedTuple):
    """The answer of an interface. `fix` is None if the interface has no field for it beside the
    message."""

    code: str
    message: str
    fix: str | None = None


@dataclass
class RestRequest:
    """A request to the REST gateway."""

    method: str
    path: str
    body: Any = None
    headers: dict[str, str] | None = None
    query: dict[str, Any] | None = None


class _Active:
    """Brokers' reports of the active controller."""

    controller_id = 1
    epoch = 1

    def __init__(self, address: str) -> None:
        self.address = address

    async def close(self) -> None:
        pass


class World:
    """Runs in an event loop with its own thread, because a command runs a loop itself."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="world", daemon=True)
        self._thread.start()
        self._closing = AsyncExitStack()
        self.in_loop(self._start())

    def in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_SECONDS)

    def close(self) -> None:
        self.in_loop(self._closing.aclose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_SECONDS)
        self.loop.close()

    # The three interfaces.

    def by_grpc(self, call: Callable[[Admin], Coroutine[Any, Any, object]]) -> Rejection | None:
        try:
            answer = self.in_loop(call(self.admin))
        except TidelogError as error:
            return Rejection(error.code.name, error.message)
        results = answer if isinstance(answer, list) else []
        errors = (getattr(one, "error", None) for one in results)
        failed = next((e for e in errors if isinstance(e, TidelogError)), None)
        return Rejection(failed.code.name, failed.message) if failed else None

    def by_rest(self, request: RestRequest) -> Rejection | None:
        answer = self.in_loop(
            self._gateway.request(
                request.method,
                request.path,
                json=request.body,
                headers=request.headers,
                params=request.query,
            )
        )
        body = answer.json()
        if answer.status_code >= 400:
            return Rejection(body["code"], body["detail"], body.get("fix"))
        return _first_failure(body.get("items") or body.get("results") or [])

    def by_command(self, words: tuple[str, ...], input_: str = "") -> Rejection | None:
        session = Session(",".join(self._cluster.bootstrap()), interactive=False)
        ended = CliRunner().invoke(
            commands, [*words, "--json"], obj=session, input=input_, catch_exceptions=False
        )
        document = json.loads(ended.stdout)
        if ended.exit_code == 0:
            return None
        error = document.get("error")
        if error is None:
            return _first_failure(document.get("partitions") or document["results"])
        assert error["message"] in ended.stderr
        return Rejection(error["code"], error["message"])

    # The cluster.

    async def _start(self) -> None:
        self._store = MemoryStore(SystemClock())
        self._network = FakeNetwork()
        await register(self._store, *BROKERS, LOST_BROKER)
        controller = ControllerProcess(1, self._store, self._network)
        self._closing.push_async_callback(self._store.close)
        self._closing.push_async_callback(controller.stop)
        await until(lambda: controller.service.term is not None)
        server = new_server()
        add_AdminServiceServicer_to_server(AdminServicer(controller.service), server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self._closing.push_async_callback(server.stop, None)
        self._cluster = await FakeCluster().start(1)
        self._cluster.controller = _Active(address)  # type: ignore[assignment]
        self._closing.push_async_callback(self._cluster.close)
        self.admin = await self._closing.enter_async_context(Admin(self._cluster.bootstrap()))
        await self._open_gateway()
        await self._fill()
        self.before = await self.kept()

    async def _open_gateway(self) -> None:
        dependencies = Dependencies(
            self.admin,
            FakeExplains().explain,
            FakeStates(),
            FakeClock(),
            random.Random(1),
            FakeEvents(),
            lambda _acks: FakeProducer(),
            lambda _timeout_ms: FakeConsumer([]),
            FakePublished().read,
        )
        transport = httpx.ASGITransport(create_app(dependencies, AdminApiConfig()))
        client = httpx.AsyncClient(transport=transport, base_url="http://gateway")
        self._gateway = await self._closing.enter_async_context(client)

    async def _fill(self) -> None:
        """Topic sea is healthy. In bay, broker 2 is out of sync. Topic reef has no leader. Topic
        tide has a move that never ends. Operation "ended" is done, "busy" runs."""
        admin, two = self.admin, {"min_insync_replicas": "2"}
        await admin.create_topic("sea", assignment=[(1, 2), (2, 3), (3, 1)], config=two)
        await admin.create_topic("bay", assignment=[(1, 2)])
        await admin.create_topic("reef", assignment=[(LOST_BROKER,)])
        await admin.create_topic("tide", assignment=[(1,)])
        await admin.reassign([Move("sea", 0, (2, 1))], operation_id="ended")
        while (await admin.describe_operation("ended")).state != "done":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await admin.reassign([Move("tide", 0, (2,))], operation_id="busy")
        state, revision = await self.partition("bay")
        alone = state.with_isr([member for member in state.isr if member.broker_id == 1])
        key = KEYS.leader_and_isr(TopicPartition("bay", 0))
        change = Put(key, encode_leader_and_isr(alone))
        assert (
            await self._store.transact(Transaction([ModRevision(key, revision)], [change]))
        ).succeeded
        self._network.kill(broker_address(LOST_BROKER))
        await self._store.transact(Transaction([], [Delete(KEYS.broker(LOST_BROKER))]))
        while (await self.partition("reef"))[0].leader != NO_LEADER:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while (await self.partition("tide"))[0].moving is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def partition(self, topic: str) -> tuple[LeaderAndIsr, int]:
        held = await self._store.get(KEYS.leader_and_isr(TopicPartition(topic, 0)))
        assert held is not None
        return decode_leader_and_isr(held.value), held.mod_revision

    async def kept(self) -> dict[str, bytes]:
        """Everything that requests could have changed."""
        snapshot = await self._store.snapshot(KEYS.root)
        return {key: held.value for key, held in snapshot.items.items()}


def _first_failure(results: list[dict[str, Any]]) -> Rejection | None:
    errors = (result["error"] for result in results)
    return next((Rejection(e["code"], e["message"]) for e in errors if e), None)
