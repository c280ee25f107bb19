"""Events of a broker's registration."""

import asyncio

from tidelog.state_changes.event import NO_REVISION, Cause, Kind, Stage
from unit.broker.broker_parts import KEYS, events_told, stages
from unit.broker.membership.test_broker_registration import Broker, running


async def test_a_registration_event_has_its_incarnation() -> None:
    broker = Broker()
    async with running(broker):
        epoch = await broker.registered()
    (told,) = events_told(broker.state_changes)
    assert (told.kind, told.stage) == (Kind.REGISTRATION, Stage.COMPLETED)
    assert (told.broker, told.broker_epoch, told.revision) == (1, epoch, epoch)
    assert told.details["whole_since"] == epoch


async def test_a_broker_whose_key_is_deleted_emits_the_removal_and_registers_again() -> None:
    broker = Broker()
    async with running(broker):
        first = await broker.registered()
        broker.registration.observed_gone(broker.store.delete(KEYS.broker(1)))
        await broker.registered(times=2)
    _, lost, again = events_told(broker.state_changes)
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
    lost = events_told(broker.state_changes, Kind.REGISTRATION_LOST)
    assert [told.cause for told in lost] == [Cause.BROKER_LEASE_ENDED]
    assert stages(events_told(broker.state_changes))[-1] == "registration completed"
