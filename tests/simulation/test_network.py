"""Calls over links that lose, repeat and cut, and to processes that do not run."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from simulation.loop import SimLoop, SimProcess
from simulation.network import CallFailedError, Conditions, Network, Serving

ADDRESS = "server:1"


class Echo:
    """A server that answers at once, or never."""

    def __init__(self, *, answers: bool = True) -> None:
        self.process = SimProcess("server", 1)
        self.answers = answers
        self.served: list[tuple[str, object]] = []

    def serve(self, serving: Serving) -> None:
        self.served.append((serving.call.kind, serving.call.request))
        if self.answers:
            serving.reply(serving.call.request)


class Net:
    def __init__(self) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        self.network = Network(self.loop, random.Random)
        self.client = SimProcess("client", 1)
        self.echo = Echo()
        self.network.listen(ADDRESS, self.echo)

    def call(self, request: object = 1, timeout_ms: int | None = 1_000, kind: str = "ask") -> Any:
        return self.run(lambda: self.network.call(kind, ADDRESS, request, timeout_ms))

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            return await self.loop.spawn(self.client, work())

        return self.loop.run(main())


@pytest.fixture
def net() -> Iterator[Net]:
    net = Net()
    yield net
    net.loop.close()


def everywhere(_source: str, _target: str) -> bool:
    return True


def test_an_answer_comes_after_both_ways(net: Net) -> None:
    assert net.call(7) == 7
    assert 0.000_4 <= net.loop.time() < 1


def test_a_message_over_a_cut_link_is_missed_at_the_timeout(net: Net) -> None:
    net.network.disturb(everywhere, Conditions(cut=True))
    with pytest.raises(CallFailedError, match="no answer within 1000 ms"):
        net.call()
    assert net.echo.served == []


def test_what_is_lifted_is_over(net: Net) -> None:
    net.network.lift(net.network.disturb(everywhere, Conditions(cut=True)))
    assert net.call(7) == 7


def test_a_cut_one_way_loses_the_answer_alone(net: Net) -> None:
    net.network.disturb(lambda source, _: source == "server", Conditions(cut=True))
    with pytest.raises(CallFailedError):
        net.call()
    assert len(net.echo.served) == 1


def test_only_what_the_protocol_repeats_arrives_twice(net: Net) -> None:
    net.network.disturb(everywhere, Conditions(repeat=1.0))
    net.call(kind="replica_fetch")
    net.call(kind="produce")
    net.run(lambda: asyncio.sleep(20))
    kinds = [kind for kind, _ in net.echo.served]
    assert (kinds.count("replica_fetch"), kinds.count("produce")) == (2, 1)


def test_reordering_lets_a_message_be_overtaken(net: Net) -> None:
    net.network.disturb(everywhere, Conditions(reorder=0.5))

    async def all_at_once() -> None:
        calls = (net.network.call("ask", ADDRESS, n, 60_000) for n in range(20))
        await asyncio.gather(*calls)

    net.run(all_at_once)
    requests = [request for _, request in net.echo.served]
    assert sorted(requests, key=str) != requests
    assert len(requests) == 20


def test_a_port_without_a_listener_refuses_connections_at_once(net: Net) -> None:
    net.network.stop_listening(ADDRESS)
    with pytest.raises(CallFailedError, match="connection refused"):
        net.call()
    assert net.loop.time() < 1


def test_a_machine_that_is_down_does_not_even_refuse_connections(net: Net) -> None:
    net.network.host("server").up = False
    with pytest.raises(CallFailedError, match="no answer"):
        net.call()


def test_a_process_that_ends_resets_its_connections(net: Net) -> None:
    net.echo.answers = False
    net.loop.call_later(0.1, net.network.process_ended, net.echo.process)
    with pytest.raises(CallFailedError, match="connection reset"):
        net.call()


def test_an_open_connection_to_a_machine_that_is_gone_ends_by_its_pings(net: Net) -> None:
    net.echo.answers = False

    def power_off() -> None:
        net.network.host("server").up = False
        net.network.process_ended(net.echo.process, noticed=False)

    net.loop.call_later(0.1, power_off)
    with pytest.raises(CallFailedError, match="nothing was heard"):
        net.call(timeout_ms=None)
    assert 10 < net.loop.time() < 20


def test_a_dial_finds_out_whether_a_process_listens(net: Net) -> None:
    assert net.run(lambda: net.network.dial(ADDRESS, 200)) is True
    net.loop.pause(net.echo.process)
    assert net.run(lambda: net.network.dial(ADDRESS, 200)) is True
    assert net.run(lambda: net.network.dial("server:2", 200)) is False
    net.network.host("server").up = False
    assert net.run(lambda: net.network.dial(ADDRESS, 200)) is None


def test_a_caller_that_hangs_up_ends_the_work_for_its_call(net: Net) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            ended.append("cancelled")

    def serve(serving: Serving) -> None:
        serving.task = net.loop.create_task(work())

    net.echo.serve = serve  # type: ignore[method-assign]
    with pytest.raises(CallFailedError):
        net.call(timeout_ms=500)
    net.run(lambda: asyncio.sleep(1))
    assert ended == ["cancelled"]


def test_an_answered_call_leaves_no_garbage_to_collect(net: Net) -> None:
    class Request:
        pass

    request = Request()
    left = weakref.ref(request)
    gc.disable()
    try:
        net.call(request)
        net.echo.served.clear()
        del request
        assert left() is None
    finally:
        gc.enable()
