"""Which trace the events of a broker have: that of a command, or that of the call that brought
it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tidelog.errors import ErrorCode
from tidelog.state_changes.event import Change, Kind
from tidelog_broker.edge.replica_control_service import ReplicaControlService
from tidelog_runtime.replica_control_codec import leader_and_isr_to_wire, stop_replica_to_wire
from unit.broker.broker_parts import Replicas, command, stop_command
from unit.broker.fake_log import state

CALLS, BODYS = "a" * 32, "b" * 32


class _Context:
    """The context of a call that belongs to a trace."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("user-agent", "any"), ("traceparent", f"00-{CALLS}-{1:016x}-00"))


CONTEXT: Any = _Context()


def serving(replicas: Replicas) -> ReplicaControlService:
    return ReplicaControlService(replicas.commands, asyncio.Event())


def traces(replicas: Replicas, *kinds: Kind) -> set[str]:
    return {event.trace_id for event in replicas.events(*kinds)}


async def test_events_of_a_command_without_a_trace_have_that_of_the_call() -> None:
    replicas = Replicas()
    wire = await leader_and_isr_to_wire(command(state(), full_state=True))
    await serving(replicas).LeaderAndIsr(wire, CONTEXT)
    assert traces(replicas, Kind.COMMAND, Kind.CREATE, Kind.BECOME_LEADER) == {CALLS}


async def test_the_trace_in_a_command_takes_precedence_over_that_of_the_call() -> None:
    replicas = Replicas()
    wanted = replace(state(), change=Change("c1-7", trace_id=BODYS))
    await serving(replicas).LeaderAndIsr(await leader_and_isr_to_wire(command(wanted)), CONTEXT)
    assert traces(replicas, Kind.BECOME_LEADER) == {BODYS}


async def test_events_of_a_stop_without_a_trace_have_that_of_the_call() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command(state(), full_state=True))
    await serving(replicas).StopReplica(await stop_replica_to_wire(stop_command(20)), CONTEXT)
    assert traces(replicas, Kind.DELETE, Kind.STOP) == {CALLS}


async def test_the_event_of_a_rejected_command_has_its_trace() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command(state(), full_state=True))
    replicas.state_changes._ring.clear()
    wire = await leader_and_isr_to_wire(command(state(), 20, controller_epoch=0))
    await serving(replicas).LeaderAndIsr(wire, CONTEXT)
    assert traces(replicas, Kind.COMMAND) == {CALLS}


async def test_a_fenced_command_is_rejected_before_its_partitions_are_read() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command(state(), full_state=True))
    replicas.state_changes._ring.clear()
    read: list[Any] = []

    def known(*args: Any) -> None:
        read.append(args)

    service = ReplicaControlService(replicas.commands, asyncio.Event(), known)
    wire = await leader_and_isr_to_wire(command(state(), 20, controller_epoch=0))
    response = await service.LeaderAndIsr(wire, CONTEXT)
    assert ErrorCode(response.error.code) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert not read
    (event,) = replicas.events(Kind.COMMAND)
    assert event.details["partitions"] == 1
    await service.LeaderAndIsr(await leader_and_isr_to_wire(command(state(), 20)), CONTEXT)
    assert read
