"""Events of a broker's registration."""

import asyncio

from tidelog.state_changes.event import NO_REVISION, Cause, Kind, Stage
from unit.broker.broker_parts import KEYS, emitted_events, stages
from unit.broker.membership.test_broker_registration import Broker, running


async def test_a_registration_event_has_its_incarnation() -> None:
    broker = Broker()
    async with running(broker):
        epoch = await broker.registered()
    (event,) = emitted_events(broker.state_changes)
    assert (event.kind, event.stage) == (Kind.REGISTRATION, Stage.COMPLETED)
    assert (event.broker, event.broker_epoch, event.revision) == (1, epoch, epoch)
    assert event.details["whole_since"] == epoch


async def test_a_broker_whose_key_is_deleted_emits_the_removal_and_registers_again() -> None:
    broker = Broker()
    async with running(broker):
        first = await broker.registered()
        broker.registration.observed_gone(broker.store.delete(KEYS.broker(1)))
        await broker.registered(times=2)
    _, lost, again = emitted_events(broker.state_changes)
    assert (lost.kind, lost.cause, lost.broker_epoch) == (
        Kind.REGISTRATION_LOST,
        Cause.REMOVED,
        first,
    )
    assert lost.revision == NO_REVISION
    assert again.broker_epoch > first


async def test_a_broker_whose_lease_expired_emits_that() -> None:
    broker = Broker()
    async with running(broker):
        await broker.registered()
        broker.store.disconnect()
        await asyncio.sleep(10)
        broker.store.reconnect()
        await broker.registered(times=2)
    lost = emitted_events(broker.state_changes, Kind.REGISTRATION_LOST)
    assert [event.cause for event in lost] == [Cause.BROKER_LEASE_ENDED]
    assert stages(emitted_events(broker.state_changes))[-1] == "registration completed"
