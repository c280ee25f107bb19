"""Every public call of the clients, found by introspection, and brokers that misbehave: what the
tests of docs/client-guarantees.md combine."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tidelog.client import Admin, Consumer, Producer
from tidelog.client.operations import Move
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import OffsetPosition, TopicPartition
from tidelog.rpc.status import UnreachableError
from unit.metadata.virtual_time import virtual_clock

SEA = TopicPartition("sea", 0)

# By the name of the parameter: one more of another name has to be added here.
ARGUMENTS: Mapping[str, Any] = MappingProxyType(
    {
        "broker_ids": [1],
        "broker_id": 1,
        "bytes_per_second": None,
        "epoch": 0,
        "known": {},
        "leaders": {SEA: 1},
        "moves": [Move("sea", 0, (1, 2, 3))],
        "name": "a-name",
        "names": ["sea"],
        "offset": 0,
        "offsets": {SEA: 0},
        "operation_id": "op-1",
        "page_size": 10,
        "partition": SEA,
        "position": OffsetPosition.EARLIEST,
        "replication_factor": 1,
        "request": lambda client: client.close(),
        "reversed_operation_id": "op-1",
        "timestamp_ms": 0,
        "topic": "sea",
        "topic_id": "an-id",
        "topics": ["sea"],
        "value": b"v",
        "values": [b"v"],
    }
)
# Where one name means different things.
OWN_ARGUMENTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "add_partitions": {"partitions": 2},
        "alter_topic_config": {"changed": {"retention_ms": "1000"}},
        "remove_partitions": {"partitions": 1, "confirm_topic": "sea"},
    }
)
PARTITIONS = [SEA]


class PublicCall(NamedTuple):
    """One public coroutine of a client. `str` names a test."""

    client: type
    method: str

    def __str__(self) -> str:
        return f"{self.client.__name__}.{self.method}"

    def start(self, client: Any) -> Coroutine[Any, Any, Any]:
        method = getattr(client, self.method)
        work = method(**arguments_of(method))
        assert asyncio.iscoroutine(work)
        return work


def arguments_of(method: Callable[..., Any]) -> dict[str, Any]:
    """One argument for each parameter that needs one. Fails for a parameter that is not known."""
    own = OWN_ARGUMENTS.get(method.__name__, {})
    needed = [
        name
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    known = {"partitions": PARTITIONS, **ARGUMENTS}
    for name in needed:
        assert name in own or name in known, f"{method.__name__} needs a value for {name!r}"
    return {**{name: known[name] for name in needed if name in known}, **own}


def public_calls(*clients: type) -> list[PublicCall]:
    """`close` is not among them: it is what the others are combined with."""
    found = [
        PublicCall(client, name)
        for client in clients
        for name, _ in inspect.getmembers(client, inspect.iscoroutinefunction)
        if not name.startswith("_") and name != "close"
    ]
    return [*found, *(PublicCall(c, "__anext__") for c in clients if hasattr(c, "__anext__"))]


class Unwell:
    """Connections to brokers and controllers all of which are silent (nothing is answered until
    the call's own timeout) or dead (every call fails at once). `calls`: how many were made."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self.calls = 0
        self.closed = 0

    def broker(self, address: str) -> Any:
        return _UnwellService(self, address)

    controller = broker

    async def close(self) -> None:
        self.closed += 1

    async def call(self, address: str, timeout_ms: int) -> None:
        self.calls += 1
        if self._silent:
            await asyncio.sleep(timeout_ms / 1000)
            raise UnreachableError(address, "DEADLINE_EXCEEDED")
        await asyncio.sleep(0)
        raise UnreachableError(address, "UNAVAILABLE: nothing listens")


class _UnwellService:
    def __init__(self, connections: Unwell, address: str) -> None:
        self._connections = connections
        self._address = address

    def __getattr__(self, rpc: str) -> Callable[[Any, int], Coroutine[Any, Any, None]]:
        async def call(request: Any, timeout_ms: int) -> None:  # noqa: ARG001
            await self._connections.call(self._address, timeout_ms)

        return call


def new_client(
    client: type, connections: Any, assigned: Sequence[TopicPartition] = PARTITIONS
) -> Any:
    """On virtual time. `assigned`: to a consumer."""
    made = client(
        "127.0.0.1:1",
        connections=connections,
        clock=virtual_clock(),
        rng=random.Random(1),
    )
    if isinstance(made, Consumer) and assigned:
        made.assign(assigned)
    return made


async def outcome(task: asyncio.Task[Any]) -> str:
    """The code of the task's error; "returned" where it has none."""
    try:
        await task
    except TidelogError as error:
        return error.code.name
    return "returned"


CLIENTS = (Producer, Consumer, Admin)
CLOSED = ErrorCode.CLIENT_CLOSED.name
