"""Sends each request to its service, and measures the longest pause of the service's event loop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from bench.pauses import requests
from bench.pauses.reports import loops_that_report, reports_of
from bench.pauses.requests import Case
from tidelog.client import Admin
from tidelog.rpc.channels import open_channel
from tidelog.v1 import broker_pb2 as pb
from tidelog.v1.errors_pb2 import ErrorCode
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.process import LocalProcess

ANSWER_TIMEOUT_S = 60.0
# The time of a stream without an end of its own, and of one whose request has an answer.
STREAM_S = 0.5
FIRST_ANSWER_S = 10.0
# Time for a pause that delays answers in flight when the request was answered.
SETTLED_S = 0.05


REJECTED = "rejected: "


class Pause(NamedTuple):
    """The pauses of a service during one case.

    - `seconds`: the longest pause of each round.
    - `answer`: the outcome of the request.
    - `own_seconds`: the same, of the parts in which the service computed (`Delay.own`); empty: not
      measured.
    - `alone_seconds`: the same, of the parts in which no other thread of the service used a
      processor (`Delay.alone`); empty: not measured, because the service has no disk.
    """

    service: str
    case: str
    seconds: tuple[float, ...]
    answer: str
    own_seconds: tuple[float, ...] = ()
    alone_seconds: tuple[float, ...] = ()

    @property
    def median_ms(self) -> float:
        return _median(self.seconds) * 1000

    @property
    def own_median_ms(self) -> float:
        return _median(self.own_seconds or self.seconds) * 1000

    @property
    def alone_median_ms(self) -> float:
        return _median(self.alone_seconds or self.own_seconds or self.seconds) * 1000

    @property
    def shortest_ms(self) -> float:
        """The cost of the request itself: other work of the machine only adds to it."""
        return min(self.seconds) * 1000

    @property
    def own_shortest_ms(self) -> float:
        return min(self.own_seconds or self.seconds) * 1000


class Bounds(NamedTuple):
    """A request whose shortest pauses are within both is not repeated.

    - `ms`: of elapsed time.
    - `own_ms`: of processor time.
    """

    ms: float
    own_ms: float

    def contain(self, pause: Pause) -> bool:
        return pause.shortest_ms <= self.ms and pause.own_shortest_ms <= self.own_ms


# No pause is within these.
ALL_ROUNDS = Bounds(-1.0, -1.0)


class Selection(NamedTuple):
    """Which requests to measure: those whose service and case contain one of `texts`; empty: all.

    - `texts`: in lower case.
    """

    texts: tuple[str, ...] = ()

    def has(self, service: str, case: str) -> bool:
        name = f"{service} {case}".lower()
        return not self.texts or any(text in name for text in self.texts)


ALL = Selection()


def _median(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]


async def make_topics(bootstrap: str) -> None:
    """Creates the topics on broker 1, which is measured."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(requests.SMALL_TOPIC, assignment=[[1]])
        await admin.create_topic(
            requests.LARGE_TOPIC, assignment=[[1]], config={"max_batch_bytes": str(16 << 20)}
        )
        await admin.create_topic(requests.WIDE_TOPIC, assignment=[[1]] * requests.WIDE_PARTITIONS)


async def measured(
    service: str,
    process: LocalProcess,
    requests_of_cases: Iterable[tuple[str, Callable[[], Awaitable[str]]]],
    rounds: int,
    bounds: Bounds,
    selection: Selection = ALL,
) -> AsyncIterator[Pause]:
    """Yields the pause of each case as soon as it is measured.

    - `requests_of_cases`: names of cases, and functions that send their requests.
    - `rounds`: how often each request is sent at most (`Bounds`).
    """
    async with reports_of(process) as reports:
        for name, ask in requests_of_cases:
            if not selection.has(service, name):
                continue
            pause = Pause(service, name, (), "")
            for _ in range(rounds):
                began = time.monotonic()
                answer = await ask()
                await asyncio.sleep(SETTLED_S)
                longest, own, alone = await reports.longest_s(began)
                pause = Pause(
                    *(service, name, (*pause.seconds, longest), answer),
                    (*pause.own_seconds, own),
                    (*pause.alone_seconds, alone),
                )
                if bounds.contain(pause):
                    break
            yield pause


async def answer_of(channel: grpc.aio.Channel, case: Case) -> str:
    rpc = _rpc(case.method)
    response = GetMessageClass(rpc.output_type)
    serialize, parse = _serialize, response.FromString
    try:
        if rpc.client_streaming:
            call: Any = channel.stream_stream(case.method, serialize, parse)(iter([case.request]))
            return await _first(call, FIRST_ANSWER_S)
        if rpc.server_streaming:
            call = channel.unary_stream(case.method, serialize, parse)(case.request)
            return await _first(call, STREAM_S)
        call = channel.unary_unary(case.method, serialize, parse)
        problem = rejection(await call(case.request, timeout=ANSWER_TIMEOUT_S))
        return f"{REJECTED}{problem[:80]}" if problem else "OK"
    except grpc.aio.AioRpcError as error:
        return f"{REJECTED}{error.code().name}: {(error.details() or '')[:80]}"


def rejection(answer: Any) -> str:
    """Returns the first error in an answer or in one of its entries; empty: none."""
    for field, value in answer.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        if field.message_type.name == "Error" and not field.is_repeated:
            return f"{ErrorCode.Name(value.code)}: {value.message}"
        for entry in list(value) if field.is_repeated else [value]:
            if problem := rejection(entry):
                return problem
    return ""


async def _first(call: Any, timeout_s: float) -> str:
    try:
        async with asyncio.timeout(timeout_s):
            await call.read()
    except TimeoutError:
        return "OK, open"
    finally:
        call.cancel()
    return "OK"


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _rpc(method: str) -> Any:
    for rpc in requests.all_rpcs():
        if requests.method_name(rpc) == method:
            return rpc
    raise AssertionError(f"no service has the method {method}")


async def of_cluster(
    cluster: LocalCluster,
    rounds: int,
    bounds: Bounds = ALL_ROUNDS,
    selection: Selection = ALL,
) -> AsyncIterator[Pause]:
    """Measures the first broker and the active controller. Requests that produce the records of
    later measurements are always sent."""
    await make_topics(cluster.bootstrap)
    broker, controller = await addresses_of(cluster)
    active = await cluster.active_controller()
    assert active is not None
    for service, process, address, rpcs in (
        ("broker", cluster.broker_process(1), broker, requests.broker_rpcs()),
        ("controller", cluster.controller_process(active), controller, requests.controller_rpcs()),
    ):
        async with open_channel(address) as channel:
            cases = list(requests.cases(rpcs))
            for case in cases:
                if case.method.endswith("/Produce") and not selection.has(service, case.name):
                    await answer_of(channel, case)
            requests_of_cases = ((case.name, partial(answer_of, channel, case)) for case in cases)
            async for pause in measured(
                service, process, requests_of_cases, rounds, bounds, selection
            ):
                yield pause


async def addresses_of(cluster: LocalCluster) -> tuple[str, str]:
    first = cluster.bootstrap.split(",")[0]
    async with open_channel(first) as channel:
        call: Any = channel.unary_unary(
            "/tidelog.v1.BrokerService/Metadata", _serialize, pb.MetadataResponse.FromString
        )
        found = await call(pb.MetadataRequest(cluster_only=True), timeout=ANSWER_TIMEOUT_S)
    return first, found.controller.address


@asynccontextmanager
async def running_cluster(directory: Path, brokers: int = 4) -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster(
        directory,
        brokers=brokers,
        controllers=1,
        cluster="pauses",
        gateway=True,
        usual_ports=False,
        rng=random.Random(),
    )
    try:
        with loops_that_report(directory / "pauses"):
            await cluster.start()
            await cluster.ready()
            yield cluster
    finally:
        await cluster.stop()
