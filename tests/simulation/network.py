"""Named hosts, links between them, and calls over these links.

A call is a request and an answer, two messages that may each be late, lost, repeated or
overtaken. A caller learns of a loss only by its own timeout. It learns at once of a process
that is dead on a machine that is up: the connection is refused or reset.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from simulation.loop import SimHandle, SimLoop, SimProcess, current_process

MIN_LATENCY_US = 200
LATENCY_RANGE_US = 4_800
SPIKE_PROBABILITY = 0.002
SPIKE_RANGE_US = 300_000
# How long after the first message a repeated one arrives, at most.
REPEAT_RANGE_US = 8_000_000
# How much later an overtaken message arrives, at most.
REORDER_RANGE_US = 3_000_000
# A silent connection is given up, as by gRPC's pings.
KEEPALIVE_S = 5.0
MAX_SILENT_KEEPALIVES = 3
# Calls whose request may arrive twice, since the protocol itself sends them again.
REPEATED_KINDS = frozenset({"leader_and_isr", "stop_replica", "describe_replicas", "replica_fetch"})


Concerns: TypeAlias = Callable[[str, str], bool]


class CallFailedError(Exception):
    """There is no answer: the connection was refused or reset, or the call timed out."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a link.

    - `cut`: nothing passes
    - `delay_us`: the longest delay that is added

    The others are probabilities.
    """

    cut: bool = False
    loss: float = 0.0
    answer_loss: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    delay_us: int = 0


FAIR = Conditions()


class Link:
    """One direction between two hosts."""

    __slots__ = ("conditions", "last_us", "met", "rng", "source", "target")

    def __init__(self, source: str, target: str, rng: random.Random) -> None:
        self.source = source
        self.target = target
        self.rng = rng
        self.conditions = FAIR
        # Which of the present conditions a message has met.
        self.met: dict[str, None] = {}
        self.last_us = 0

    def arrival_us(self, now_us: int) -> int | None:
        """Returns when a message that is sent now arrives; None: never."""
        rng = self.rng
        draw = rng.random()
        arrival = now_us + MIN_LATENCY_US + int(draw * draw * draw * LATENCY_RANGE_US)
        if draw < SPIKE_PROBABILITY:
            arrival += int(rng.random() * SPIKE_RANGE_US)
        conditions = self.conditions
        if conditions is not FAIR:
            if conditions.cut:
                self.met["cut"] = None
                return None
            if conditions.loss and rng.random() < conditions.loss:
                self.met["loss"] = None
                return None
            if conditions.delay_us:
                self.met["delay_us"] = None
                arrival += int(rng.random() * conditions.delay_us)
            if conditions.reorder and rng.random() < conditions.reorder:
                # It does not delay what is sent after it.
                self.met["reorder"] = None
                return arrival + int(rng.random() * REORDER_RANGE_US)
        if arrival < self.last_us:
            arrival = self.last_us
        self.last_us = arrival
        return arrival

    def repeat_us(self, arrival_us: int) -> int | None:
        """Returns when the same message arrives again; None: never."""
        repeat = self.conditions.repeat
        if repeat and self.rng.random() < repeat:
            self.met["repeat"] = None
            return arrival_us + int(self.rng.random() * REPEAT_RANGE_US)
        return None


class Server(Protocol):
    """A server at an address."""

    @property
    def process(self) -> SimProcess: ...

    def serve(self, serving: Serving) -> None:
        """Serves a request in the server's process; calls `serving.reply`, now or later."""


class Call:
    """A call: the future of its caller, and all arrivals of its request that are being served."""

    __slots__ = ("future", "kind", "request", "servings", "silent", "source", "target", "timer")

    def __init__(self, kind: str, source: SimProcess, target: str, request: Any) -> None:
        self.kind = kind
        self.source = source
        self.target = target
        self.request = request
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.servings: dict[Serving, None] = {}
        self.timer: SimHandle | None = None
        self.silent = 0

    def settle(self, answer: object) -> None:
        if self.future.done():
            return
        if isinstance(answer, BaseException):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)

    def fail(self, why: str) -> None:
        self.settle(CallFailedError(why))


class Serving:
    """One arrival of a request, at one process."""

    __slots__ = ("call", "host", "network", "process", "task")

    def __init__(self, network: Network, call: Call, host: Host, process: SimProcess) -> None:
        self.network = network
        self.call = call
        self.host = host
        self.process = process
        self.task: asyncio.Task[Any] | None = None

    def reply(self, answer: object) -> None:
        """Sends the answer, which may be an exception that the caller's end then raises."""
        self.ended()
        call = self.call
        for observe in self.network.on_answer:
            observe(call.kind, call.source.host, call.target, answer)
        if self.network.is_answer_lost(call, answer):
            return
        self.network.send(call.target, call.source, call.settle, answer, answer_of=call.kind)

    def hung_up(self) -> None:
        """Cancels the handler, as gRPC does: the caller no longer waits."""
        if self in self.host.servings and self.task is not None:
            self.task.cancel()
        self.ended()

    def ended(self) -> None:
        """Forgets the request: it is no longer served."""
        self.host.servings.pop(self, None)
        self.call.servings.pop(self, None)


class Host:
    """A host.

    - `up`: whether its machine runs
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        self.servers: dict[str, Server] = {}
        # Requests that have arrived here and have no answer yet.
        self.servings: dict[Serving, None] = {}


class Network:
    """Hosts and links. An address is host:port, with one server."""

    def __init__(self, loop: SimLoop, rng: Callable[[str], random.Random]) -> None:
        self.loop = loop
        self.hosts: dict[str, Host] = {}
        self.on_answer: list[Callable[[str, str, str, object], None]] = []
        self.messages = 0
        self._links: dict[tuple[str, str], Link] = {}
        self._rng = rng
        self._disturbances: dict[int, tuple[Concerns, Conditions]] = {}
        self.last_disturbance = 0
        # A dict, for its order.
        self._lost_requests: dict[Callable[[Call], bool], None] = {}
        self._lost_answers: dict[Callable[[Call, object], bool], None] = {}
        # Disturbances that a message has met.
        self._effective: dict[int, None] = {}

    def host(self, name: str) -> Host:
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = Host(name)
        return host

    # -- disturbances ----------------------------------------------------------------

    def disturb(self, concerns: Concerns, conditions: Conditions) -> int:
        """Puts every link (source, target) that is concerned under these conditions.

        Returns a number by which `lift` ends them.
        """
        self._note_effects()
        self.last_disturbance += 1
        self._disturbances[self.last_disturbance] = (concerns, conditions)
        self._reconsider()
        return self.last_disturbance

    def had_effect(self, number: int) -> bool:
        """Whether a message has met that disturbance, perhaps together with similar ones."""
        self._note_effects()
        return number in self._effective

    def _note_effects(self) -> None:
        for link in self._links.values():
            if not link.met:
                continue
            for number, (concerns, conditions) in self._disturbances.items():
                if concerns(link.source, link.target) and any(
                    getattr(conditions, met) for met in link.met
                ):
                    self._effective[number] = None
            link.met.clear()

    def lift(self, number: int) -> None:
        self._note_effects()
        self._disturbances.pop(number, None)
        self._reconsider()

    def lose(self, is_lost: Callable[[Call], bool]) -> None:
        """Loses requests for which `is_lost` holds when they are sent, until `lose_no_more`."""
        self._lost_requests[is_lost] = None

    def lose_no_more(self, is_lost: Callable[[Call], bool]) -> None:
        self._lost_requests.pop(is_lost, None)

    def lose_answers(self, is_lost: Callable[[Call, object], bool]) -> None:
        """Loses answers for which `is_lost` holds, until `lose_answers_no_more`."""
        self._lost_answers[is_lost] = None

    def lose_answers_no_more(self, is_lost: Callable[[Call, object], bool]) -> None:
        self._lost_answers.pop(is_lost, None)

    def is_answer_lost(self, call: Call, answer: object) -> bool:
        return any(is_lost(call, answer) for is_lost in self._lost_answers)

    def lift_all(self) -> None:
        self._lost_requests.clear()
        self._lost_answers.clear()
        self._disturbances.clear()
        self._reconsider()

    def _reconsider(self) -> None:
        for link in self._links.values():
            link.conditions = self._conditions(link.source, link.target)

    def _conditions(self, source: str, target: str) -> Conditions:
        return worst(
            [
                conditions
                for concerns, conditions in self._disturbances.values()
                if concerns(source, target)
            ]
        )

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = Link(source, target, self._rng(f"network/{source}>{target}"))
            link.conditions = self._conditions(source, target)
            self._links[source, target] = link
        return link

    # -- messages ----------------------------------------------------------------------

    def send(
        self,
        source: str,
        target: SimProcess,
        deliver: Callable[..., None],
        *args: object,
        answer_of: str = "",
    ) -> bool:
        """Runs `deliver` in the target's process when the message arrives.

        Returns whether it will.
        """
        self.messages += 1
        link = self.link(source, target.host)
        arrival = link.arrival_us(self.loop.now_us)
        if arrival is None:
            return False
        lost = link.conditions.answer_loss
        if lost and answer_of == "transact" and link.rng.random() < lost:
            link.met["answer_loss"] = None
            return False
        self.loop.call_at_us(arrival, deliver, *args, context=target.context)
        return True

    def listen(self, address: str, server: Server) -> None:
        host, _, port = address.partition(":")
        self.host(host).servers[port] = server

    def serves(self, address: str) -> bool:
        host, _, port = address.partition(":")
        return port in self.host(host).servers

    def stop_listening(self, address: str) -> None:
        host, _, port = address.partition(":")
        self.host(host).servers.pop(port, None)

    def process_ended(self, process: SimProcess, *, noticed: bool = True) -> None:
        """Closes the servers of a process.

        - `noticed`: its machine resets the connections of those that wait
        """
        host = self.host(process.host)
        for port in [p for p, server in host.servers.items() if server.process is process]:
            del host.servers[port]
        for serving in [s for s in host.servings if s.process is process]:
            serving.ended()
            if noticed:
                self._fail_at_caller(serving.call, "connection reset")

    # -- calls -------------------------------------------------------------------------

    async def call(self, kind: str, address: str, request: object, timeout_ms: int | None) -> Any:
        """Returns the answer.

        Raises `CallFailedError`, or the exception with which the server rejected the call.
        Without `timeout_ms`, the connection is watched instead.
        """
        host, _, port = address.partition(":")
        call = Call(kind, current_process(), host, request)
        self._send_request(call, port)
        if timeout_ms is None:
            call.timer = self.loop.call_later(KEEPALIVE_S, self._keep_alive, call)
        else:
            why = f"no answer within {timeout_ms} ms"
            call.timer = self.loop.call_later(timeout_ms / 1000, call.fail, why)
        try:
            return await call.future
        finally:
            call.timer.cancel()
            for serving in call.servings:
                self.send(call.source.host, serving.process, serving.hung_up)

    async def dial(self, address: str, timeout_ms: int) -> bool | None:
        """Returns whether a connection is accepted; None: no answer.

        The kernel accepts, also for a process that is paused.
        """
        name, _, port = address.partition(":")
        call = Call("dial", current_process(), name, None)
        arrival = self.link(call.source.host, name).arrival_us(self.loop.now_us)
        if arrival is not None:
            self.loop.call_at_us(
                arrival, self._dialled, call, port, context=self.loop.world_context
            )
        timer = self.loop.call_later(timeout_ms / 1000, call.settle, None)
        try:
            accepted: bool | None = await call.future
        finally:
            timer.cancel()
        return accepted

    def _dialled(self, call: Call, port: str) -> None:
        host = self.host(call.target)
        if host.up:
            self.send(call.target, call.source, call.settle, port in host.servers)

    def _send_request(self, call: Call, port: str) -> None:
        self.messages += 1
        link = self.link(call.source.host, call.target)
        arrival = link.arrival_us(self.loop.now_us)
        if arrival is None:
            return
        if self._lost_requests and any(is_lost(call) for is_lost in self._lost_requests):
            return
        world = self.loop.world_context
        self.loop.call_at_us(arrival, self._arrive, call, port, True, context=world)
        if call.kind in REPEATED_KINDS:
            again = link.repeat_us(arrival)
            if again is not None:
                self.loop.call_at_us(again, self._arrive, call, port, False, context=world)

    def _arrive(self, call: Call, port: str, first: bool) -> None:
        host = self.host(call.target)
        if not host.up:
            return
        server = host.servers.get(port)
        if server is None:
            if first:
                self._fail_at_caller(call, "connection refused")
            return
        serving = Serving(self, call, host, server.process)
        call.servings[serving] = None
        host.servings[serving] = None
        self.loop.call_soon(server.serve, serving, context=server.process.context)

    def _fail_at_caller(self, call: Call, why: str) -> None:
        self.send(call.target, call.source, call.fail, f"{call.target}: {why}")

    def _keep_alive(self, call: Call) -> None:
        """Checks the connection, in the caller's process, as long as it waits."""
        call.silent = 0 if self._is_heard(call) else call.silent + 1
        if call.silent == MAX_SILENT_KEEPALIVES:
            call.fail(f"{call.target}: nothing was heard from it")
        elif not call.future.done():
            call.timer = self.loop.call_later(KEEPALIVE_S, self._keep_alive, call)

    def _is_heard(self, call: Call) -> bool:
        host = self.host(call.target)
        there, back = (
            self.link(call.source.host, call.target),
            self.link(call.target, call.source.host),
        )
        return (
            host.up
            and not there.conditions.cut
            and not back.conditions.cut
            and any(not serving.process.paused for serving in call.servings)
        )


def worst(conditions: Sequence[Conditions]) -> Conditions:
    """Returns the worst of each condition."""
    if not conditions:
        return FAIR
    if len(conditions) == 1:
        return conditions[0]
    return Conditions(
        cut=any(c.cut for c in conditions),
        loss=max(c.loss for c in conditions),
        answer_loss=max(c.answer_loss for c in conditions),
        repeat=max(c.repeat for c in conditions),
        reorder=max(c.reorder for c in conditions),
        delay_us=max(c.delay_us for c in conditions),
    )
