"""All public calls of the clients that `tidelog.client` exports, found by introspection, and
connections to brokers that do not respond. The tests of docs/client-guarantees.md combine them.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import tidelog.client
from tidelog.admin_messages import Move
from tidelog.client import Consumer
from tidelog.client.background import BackgroundClient
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import OffsetPosition, TopicPartition
from tidelog.rpc.status import UnreachableError
from unit.metadata.virtual_time import virtual_clock

SEA = TopicPartition("sea", 0)

# By the name of the parameter: add a value here for every new name.
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
        "next_sequence": 0,
        "names": ["sea"],
        "offset": 0,
        "offsets": {SEA: 0},
        "operation_id": "op-1",
        "page_size": 10,
        "partition": SEA,
        "position": OffsetPosition.EARLIEST,
        "replication_factor": 1,
        "request": lambda client: client.__aenter__(),
        "reversed_operation_id": "op-1",
        "timestamp_ms": 0,
        "topic": "sea",
        "topic_id": "an-id",
        "topics": ["sea"],
        "value": b"v",
        "values": [b"v"],
    }
)
# Arguments whose names have different meanings in different calls.
OWN_ARGUMENTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "add_partitions": {"partitions": 2},
        "begin_at": {"partition": 0},
        "alter_topic_config": {"changed": {"retention_ms": "1000"}},
        "remove_partitions": {"partitions": 1, "confirm_topic": "sea"},
        "raise_feature_level": {"level": 1},
    }
)
PARTITIONS = [SEA]
# Calls without a row: the other calls are combined with `close`, and `with` and `async with` end
# with it.
NOT_CALLS = frozenset(
    {"close", "__init__", "__init_subclass__", "__del__", "__aexit__", "__exit__"}
)
# A result with one of these, or with a coroutine, may wait for something.
WAITING_METHODS = (
    *("__await__", "__aenter__", "__aiter__", "__anext__", "__enter__", "__next__"),
    "result",
)


class PublicCall(NamedTuple):
    """One public call of a client, of any kind of method. Its `str` is the id of a test."""

    client: type
    method: str

    def __str__(self) -> str:
        return f"{self.client.__name__}.{self.method}"

    @property
    def takes_a_timeout(self) -> bool:
        return "timeout_ms" in inspect.signature(getattr(self.client, self.method)).parameters

    async def start(self, client: Any, **more: Any) -> Any:
        """Calls it and waits for its result: a coroutine, a future, or the first item."""
        method = getattr(client, self.method)
        result = method(**arguments_of(method) | more)
        if inspect.isawaitable(result):
            return await result
        return await anext(result) if hasattr(result, "__anext__") else result

    def run(self, client: Any, timeout_ms: int | None = None) -> Any:
        """Does the same for a client without async; within `timeout_ms`, where the call takes
        it.
        """
        method = getattr(client, self.method)
        arguments = arguments_of(method)
        if timeout_ms is not None and self.takes_a_timeout:
            arguments["timeout_ms"] = timeout_ms
        result = method(**arguments)
        return next(result) if hasattr(result, "__next__") else result


def arguments_of(method: Callable[..., Any]) -> dict[str, Any]:
    """One argument for each required parameter. Fails for an unknown parameter."""
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


def public_members(client: type) -> dict[str, Any]:
    """All public members of a client: names without an underscore, and the special methods that its
    own classes define, such as `__aenter__`.
    """
    found: dict[str, Any] = {}
    for base in reversed(client.__mro__):
        if base.__module__ in ("builtins", "typing"):
            continue
        for name, member in vars(base).items():
            of_language = name.startswith("__") and inspect.isroutine(member)
            if of_language or not name.startswith("_"):
                found[name] = member
    return found


def public_calls(*clients: type) -> list[PublicCall]:
    """All members except properties, which `properties` returns, and NOT_CALLS."""
    return [
        PublicCall(client, name)
        for client in clients
        for name, member in sorted(public_members(client).items())
        if name not in NOT_CALLS and not isinstance(member, property)
    ]


def properties(*clients: type) -> list[tuple[type, str]]:
    return [
        (client, name)
        for client in clients
        for name, member in sorted(public_members(client).items())
        if isinstance(member, property)
    ]


def exported_clients() -> list[type]:
    """All exported classes that have `close`."""
    exported = (getattr(tidelog.client, name) for name in tidelog.client.__all__)
    return [each for each in exported if inspect.isclass(each) and hasattr(each, "close")]


def returned_waits(*calls: PublicCall) -> set[type]:
    """The types of results, by the calls' annotations, that may wait for something when they are
    used. Attributes of results count as results; the clients themselves do not.
    """
    found: set[type] = set()
    for call in calls:
        hints = get_type_hints(getattr(call.client, call.method))
        assert hints.get("return", Any) is not Any, f"{call} does not say what it returns"
        _collect_types(hints["return"], found)
    clients = {*CLIENTS, *SYNC_CLIENTS, BackgroundClient}
    return {each for each in found if _may_wait(each)} - clients


def _collect_types(hint: Any, found: set[type]) -> None:
    for argument in get_args(hint):
        _collect_types(argument, found)
    each = get_origin(hint) or hint
    if not inspect.isclass(each) or each in found:
        return
    found.add(each)
    if each.__module__.startswith(("tidelog", "unit")):
        for attribute in _attributes(each):
            _collect_types(attribute, found)


def _attributes(of: type) -> Iterator[Any]:
    """Annotations of fields, properties, and the constructor's parameters."""
    yield from get_type_hints(of).values()
    constructor = vars(of).get("__init__")
    if inspect.isfunction(constructor):
        yield from get_type_hints(constructor).values()
    for _, member in inspect.getmembers(of, lambda member: isinstance(member, property)):
        yield get_type_hints(member.fget).get("return")


def _may_wait(each: type) -> bool:
    return any(hasattr(each, name) for name in WAITING_METHODS) or any(
        inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        for _, member in inspect.getmembers(each)
    )


class Unresponsive:
    """Connections to brokers and controllers that do not respond.

    - silent: no call is answered before its own timeout;
    - dead: every call fails at once;
    - unresolved: the names have no addresses.

    `calls` is the number of calls.
    """

    def __init__(self, *, silent: bool, unresolved: bool = False) -> None:
        self._silent = silent
        self.unresolved = unresolved
        self.calls = 0
        self.closed = 0

    def broker(self, address: str) -> Any:
        return _UnresponsiveService(self, address)

    controller = broker

    async def close(self) -> None:
        self.closed += 1

    async def call(self, address: str, timeout_ms: int) -> None:
        self.calls += 1
        if self._silent:
            await asyncio.sleep(timeout_ms / 1000)
            raise UnreachableError(address, "DEADLINE_EXCEEDED")
        await asyncio.sleep(0)
        reason = "UNAVAILABLE: nothing listens"
        raise UnreachableError(address, reason, unresolved=self.unresolved)


class _UnresponsiveService:
    def __init__(self, connections: Unresponsive, address: str) -> None:
        self._connections = connections
        self._address = address

    def __getattr__(self, rpc: str) -> Callable[..., Coroutine[Any, Any, None]]:
        async def call(*arguments: Any) -> None:
            await self._connections.call(self._address, timeout_ms=arguments[-1])

        return call


def new_client(
    client: type, connections: Any, assigned: Sequence[TopicPartition] = PARTITIONS
) -> Any:
    """A client on virtual time. `assigned` are the partitions of a consumer."""
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
    """The code of the task's error; "returned" if it has none."""
    try:
        await task
    except TidelogError as error:
        return error.code.name
    return "returned"


SYNC_CLIENTS = tuple(c for c in exported_clients() if issubclass(c, BackgroundClient))
CLIENTS = tuple(c for c in exported_clients() if c not in SYNC_CLIENTS)
CLOSED = ErrorCode.CLIENT_CLOSED.name
