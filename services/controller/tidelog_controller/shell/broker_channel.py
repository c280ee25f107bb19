"""The connection to one incarnation of a broker.

Commands go through it, and its end lets the controller detect a crash at once ("Detection" in
docs/internals/protocol.md).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

from tidelog.inspection.controller_reports import BrokerConnection
from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog_controller.state.commands import (
    SendDescribeReplicas,
    SendLeaderAndIsr,
    SendStopReplica,
)
from tidelog_controller.state.context import ControllerIdentity
from tidelog_controller.state.events import (
    CommandAnswered,
    CommandLost,
    ConnectionEnded,
    DialOutcome,
    Event,
    ReplicasDescribed,
)
from tidelog_runtime.clock import Clock
from tidelog_runtime.replica_control import BrokerUnreachableError, ReplicaControl

DIAL_TIMEOUT_SECONDS = 0.2
RESOLVE_TIMEOUT_SECONDS = 2.0
# A resolver's errors for a name that does not exist. Any other error, EAI_AGAIN above all, means
# that the resolver failed, and says nothing about the broker. EAI_NODATA does not exist everywhere.
NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})

# The pause between a lost connection and the next one. The first is short: a process that is ending
# may accept a last connection, and the next dial finds it gone.
FIRST_PAUSE_SECONDS = 0.05
MAX_PAUSE_SECONDS = 2.0
# After a connection that lasted this long, pauses are short again.
STABLE_AFTER_MS = 5_000


class Dialer(Protocol):
    async def dial(self, address: str) -> DialOutcome:
        """Connects to host:port and disconnects."""


class TcpDialer:
    """A plain TCP connect: no part of gRPC can make a dead process look alive."""

    async def dial(self, address: str) -> DialOutcome:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_SECONDS):
                found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            gone = error.errno in NO_SUCH_NAME
            return DialOutcome.UNRESOLVED if gone else DialOutcome.NO_ANSWER
        except (UnicodeError, TimeoutError):
            # UnicodeError: the name cannot be encoded, which says nothing about the process.
            return DialOutcome.NO_ANSWER
        # A name may have several addresses; the outcome is REFUSED only if all of them refuse.
        outcome = DialOutcome.REFUSED
        for *_, endpoint in found:
            this = await self._connect(str(endpoint[0]), int(endpoint[1]))
            if this is DialOutcome.ACCEPTED:
                return this
            if this is DialOutcome.NO_ANSWER:
                outcome = this
        return outcome

    async def _connect(self, host: str, port: int) -> DialOutcome:
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_SECONDS):
                _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            return DialOutcome.REFUSED
        except (OSError, TimeoutError):
            return DialOutcome.NO_ANSWER
        writer.close()
        return DialOutcome.ACCEPTED


class BrokerChannel:
    """A channel to one incarnation of a broker.

    `emit` passes an event to the controller; it may wait while the queue is full.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        address: str,
        *,
        identity: ControllerIdentity,
        control: ReplicaControl,
        dialer: Dialer,
        clock: Clock,
        emit: Callable[[Event], Awaitable[None]],
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._address = address
        self._identity = identity
        self._control = control
        self._dialer = dialer
        self._clock = clock
        self._emit = emit
        self._watching: asyncio.Task[None] | None = None
        # None: there is a connection, and the broker has answered over it.
        self._broken_since_ms: int | None = clock.monotonic_ms()
        self._dial = ""

    def described(self) -> BrokerConnection:
        broken_ms, dial = NOT_KNOWN, ""
        if self._broken_since_ms is not None:
            broken_ms, dial = self._clock.monotonic_ms() - self._broken_since_ms, self._dial
        return BrokerConnection(self.broker_id, self.broker_epoch, broken_ms, dial)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._watching = tasks.create_task(self._watch())

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._control.close()

    async def send(
        self, command: SendLeaderAndIsr | SendStopReplica | SendDescribeReplicas
    ) -> None:
        try:
            answer = await self._answer(command)
        except BrokerUnreachableError as error:
            answer = CommandLost(self.broker_id, self.broker_epoch, command.id, str(error))
        await self._emit(answer)

    async def _answer(
        self, command: SendLeaderAndIsr | SendStopReplica | SendDescribeReplicas
    ) -> Event:
        name = (self.broker_id, self.broker_epoch, command.id)
        match command:
            case SendLeaderAndIsr():
                return CommandAnswered(*name, await self._control.leader_and_isr(command.command))
            case SendStopReplica():
                return CommandAnswered(*name, await self._control.stop_replica(command.command))
            case SendDescribeReplicas():
                described = await self._control.describe_replicas(command.command)
                return ReplicasDescribed(*name, described)

    async def _watch(self) -> None:
        """Watches until the channel is closed.

        The controller, and not the connection, decides whether this incarnation has ended.
        """
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            began_ms = self._clock.monotonic_ms()
            await self._control.watch(
                self._identity.controller_id,
                self._identity.controller_epoch,
                self.broker_epoch,
                self._established,
            )
            ended_ms = self._clock.monotonic_ms()
            if self._broken_since_ms is None:
                self._broken_since_ms = ended_ms
            dial = await self._dialer.dial(self._address)
            self._dial = dial.value
            detection_ms = self._clock.monotonic_ms() - ended_ms
            await self._emit(ConnectionEnded(self.broker_id, self.broker_epoch, dial, detection_ms))
            if ended_ms - began_ms >= STABLE_AFTER_MS:
                pause_seconds = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)

    def _established(self) -> None:
        self._broken_since_ms = None
