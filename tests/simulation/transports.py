"""The production boundaries between processes, over the simulated `Network`.

They raise what gRPC would: no answer is `UnreachableError`, `PeerUnreachableError` or
`BrokerUnreachableError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

import grpc
from google.protobuf.message import Message

from simulation.loop import current_process
from simulation.network import CallFailedError
from tidelog.client.admin_api import AdminApi, method_of
from tidelog.client.connections import BrokerApi
from tidelog.errors import TidelogError
from tidelog.rpc.status import UnreachableError
from tidelog_broker.core.fetch_messages import FetchId, ReplicaFetchRequest, ReplicaFetchResponse
from tidelog_broker.replication.transport import (
    ANSWER_TIMEOUT_MS,
    ControllerUnreachableError,
    PeerUnreachableError,
)
from tidelog_controller.state.events import DialOutcome
from tidelog_runtime.broker_reports import DiskReport, UnreachableLeadersReport
from tidelog_runtime.replica_control import BrokerUnreachableError, LeaderAndIsrCommand

if TYPE_CHECKING:
    from simulation.world import World

REPORT_DISK = "report_disk"
REPORT_UNREACHABLE_LEADERS = "report_unreachable_leaders"
REPORT_TIMEOUT_MS = 2_000
DIAL_TIMEOUT_MS = 200


class Refusal(Exception):  # noqa: N818 - as gRPC's own, it only carries a status
    def __init__(self, code: grpc.StatusCode, details: str, metadata: Any) -> None:
        super().__init__(details)
        self.error = grpc.aio.AioRpcError(
            code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details
        )


class _Context:
    """The part of a servicer's context that the edge uses."""

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def peer(self) -> str:
        return "simulated"

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()
    ) -> NoReturn:
        raise Refusal(code, details, trailing_metadata)


CONTEXT = cast(Any, _Context())


class SimControllers:
    def __init__(self, world: World) -> None:
        self._network = world.network

    async def report_unreachable_leaders(
        self, address: str, report: UnreachableLeadersReport
    ) -> TidelogError | None:
        try:
            await self._network.call(REPORT_UNREACHABLE_LEADERS, address, report, REPORT_TIMEOUT_MS)
        except TidelogError as refusal:
            return refusal
        except (CallFailedError, UnreachableError) as error:
            raise ControllerUnreachableError(str(error)) from None
        return None

    async def report_disk(self, address: str, report: DiskReport) -> TidelogError | None:
        try:
            await self._network.call(REPORT_DISK, address, report, REPORT_TIMEOUT_MS)
        except TidelogError as rejection:
            return rejection
        except (CallFailedError, UnreachableError) as error:
            raise ControllerUnreachableError(str(error)) from None
        return None

    async def close(self) -> None:
        pass


class SimPeers:
    def __init__(self, world: World) -> None:
        self._network = world.network
        self._completing_early: set[asyncio.Task[None]] = set()

    async def reach(self, address: str) -> None:
        """Does nothing: no connection is opened in advance here, and the fetch shows failures."""

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse:
        try:
            answer = await self._network.call(
                "replica_fetch", address, request, request.max_wait_ms + ANSWER_TIMEOUT_MS
            )
        except (CallFailedError, UnreachableError, TidelogError) as error:
            raise PeerUnreachableError(str(error)) from None
        return cast(ReplicaFetchResponse, answer)

    def complete_early(self, address: str, request: ReplicaFetchRequest) -> None:
        """Sends it without a stream: it may come late, or before the fetch that it concerns."""
        completing_early = asyncio.create_task(self._complete_early(address, request.name))
        self._completing_early.add(completing_early)
        completing_early.add_done_callback(self._completing_early.discard)

    async def _complete_early(self, address: str, fetch: FetchId) -> None:
        with suppress(CallFailedError, UnreachableError, TidelogError):
            await self._network.call("hurry", address, fetch, ANSWER_TIMEOUT_MS)

    async def close(self) -> None:
        pass


class SimDialer:
    def __init__(self, world: World) -> None:
        self._network = world.network

    async def dial(self, address: str) -> DialOutcome:
        accepted = await self._network.dial(address, DIAL_TIMEOUT_MS)
        if accepted is None:
            return DialOutcome.NO_ANSWER
        return DialOutcome.ACCEPTED if accepted else DialOutcome.REFUSED


class SimReplicaControl:
    """Implements `ReplicaControl`: what is not `watch` or `close` is a command of that name."""

    def __init__(self, world: World, address: str, timeout_ms: int) -> None:
        self._network = world.network
        self._address = address
        self._timeout_ms = timeout_ms

    def __getattr__(self, kind: str) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        if kind.startswith("_"):
            raise AttributeError(kind)
        return partial(self._command, kind)

    async def _command(self, kind: str, command: LeaderAndIsrCommand) -> object:
        try:
            return cast(
                object, await self._network.call(kind, self._address, command, self._timeout_ms)
            )
        except CallFailedError as error:
            raise BrokerUnreachableError(str(error)) from None

    async def watch(
        self,
        controller_id: int,  # noqa: ARG002
        controller_epoch: int,  # noqa: ARG002
        broker_epoch: int,
        established: Callable[[], None],  # noqa: ARG002
    ) -> None:
        """Watches the broker. `established` is not called: its report decides nothing."""
        try:
            await self._network.call("watch", self._address, broker_epoch, None)
        except (CallFailedError, TidelogError):
            return

    async def close(self) -> None:
        pass


class _ClientApi:
    """Implements `BrokerApi` and `AdminApi`: every method is a call of that name."""

    def __init__(self, world: World, address: str) -> None:
        self._world = world
        self._network = world.network
        self._address = address

    def __getattr__(self, kind: str) -> Callable[[Any, int], Coroutine[Any, Any, Any]]:
        if kind.startswith("_"):
            raise AttributeError(kind)
        return partial(self._call, kind)

    async def call(self, request: Message, response: type[Message], timeout_ms: int) -> Any:  # noqa: ARG002
        kind = "".join(f"_{c.lower()}" if c.isupper() else c for c in method_of(request))
        return await self._call(kind[1:], request, timeout_ms)

    async def _call(self, kind: str, request: object, timeout_ms: int) -> Any:
        host = current_process().host
        observer = self._world.client_observer
        question = observer.asked(host, request) if observer else 0
        try:
            answer = await self._network.call(kind, self._address, request, timeout_ms)
        except CallFailedError as error:
            raise UnreachableError(self._address, str(error)) from None
        if observer:
            observer.answer_accepted(host, question, request, answer)
        return answer


class SimConnections:
    """Implements `Connections`.

    Calls end with their process, not with the object that made them.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def broker(self, address: str) -> BrokerApi:
        return cast(BrokerApi, _ClientApi(self._world, address))

    def controller(self, address: str) -> AdminApi:
        return cast(AdminApi, _ClientApi(self._world, address))

    async def close(self) -> None:
        pass
