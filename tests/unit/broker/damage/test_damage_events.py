"""Events about damaged replicas, their resignation and their repair."""

import asyncio

from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_broker.damage.recent_damage import RecentDamage
from tidelog_broker.storage.replica_directories import DamagedReplica
from unit.broker.broker_parts import KEY, KEYS, emitted_events, stages
from unit.broker.damage.test_replica_repair import Broker, flip, three_records
from unit.broker.damage.test_resignations import Store
from unit.broker.fake_log import NAME, state

DAMAGE = (Kind.REPLICA_DAMAGED, Kind.RESIGNATION, Kind.REPLICA_REPAIRED)


async def repaired() -> Broker:
    """A wrong checksum was found while a follower read."""
    broker = Broker()
    partition = await three_records(broker)
    flip(broker)
    broker.read(partition)
    await asyncio.sleep(5)
    await broker.stop()
    return broker


async def test_damage_is_found_then_resigned_for_then_repaired() -> None:
    broker = await repaired()
    assert stages(broker.replicas.events(*DAMAGE)) == [
        "replica_damaged completed",
        "resignation requested",
        "resignation completed",
        "replica_repaired completed",
    ]


async def test_each_event_names_the_kind_of_damage_and_the_replica() -> None:
    broker = await repaired()
    for event in broker.replicas.events(*DAMAGE):
        assert (event.cause, event.name, event.broker) == (Cause.CORRUPT, NAME, 1)


async def test_a_repair_event_has_the_new_log_end() -> None:
    (event,) = (await repaired()).replicas.events(Kind.REPLICA_REPAIRED)
    assert (event.details["log_start_offset"], event.details["log_end_offset"]) == (0, 3)
    assert event.details["log_end_offset_before"] == 3


async def test_repaired_damage_is_no_longer_reported_as_damage() -> None:
    broker = Broker()
    partition = await three_records(broker)
    flip(broker)
    broker.read(partition)
    damage = broker.repair.damage_of(KEY)
    assert damage is not None
    assert damage.cause is Cause.CORRUPT
    await asyncio.sleep(5)
    assert broker.repair.damage_of(KEY) is None
    await broker.stop()


async def test_damage_found_at_a_start_is_reported_as_such() -> None:
    broker = Broker()
    await three_records(broker)
    broker.replicas.logs.take_out_of_service(KEY, "as the test wants it")
    await broker.repair.resign_found([DamagedReplica(KEY, NAME, "as the test wants it")])
    (event,) = broker.replicas.events(Kind.REPLICA_DAMAGED)
    assert event.details == {"why": "as the test wants it", "at_start": True}
    await broker.stop()


async def test_damage_is_reported_after_its_repair_and_after_a_start_that_found_it() -> None:
    while_running = await repaired()
    at_start = Broker()
    await three_records(at_start)
    at_start.replicas.logs.take_out_of_service(KEY, "as the test wants it")
    await at_start.repair.resign_found([DamagedReplica(KEY, NAME, "as the test wants it")])
    await at_start.stop()
    for broker in (while_running, at_start):
        recent = RecentDamage(broker.replicas.clock)
        for event in broker.replicas.events(*DAMAGE):
            recent.take(event)
        [damage] = recent.repaired
        assert (damage.topic, damage.partition) == NAME


# -- resigning ---------------------------------------------------------------------------


async def test_a_resignation_has_the_same_id_in_the_key_and_in_its_stages() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    await store.resign()
    change = store.partition().change
    requested, completed = emitted_events(store.state_changes)
    assert change.id == requested.change_id == completed.change_id == "b1-101-1"
    assert change.cause is Cause.CORRUPT
    assert completed.revision == store.item(KEYS.leader_and_isr(NAME)).mod_revision


async def test_a_resignation_keeps_its_id_when_it_is_written_again() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    store.holds(state(leader=3, epoch=6))
    await store.resign()
    assert len(store.sent) == 2
    assert stages(emitted_events(store.state_changes)) == [
        "resignation requested",
        "resignation completed",
    ]


async def test_a_resignation_applied_without_an_answer_is_completed() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    store.loses_answers = True
    resigning = asyncio.create_task(store.resign())
    await asyncio.sleep(0.1)
    store.loses_answers = False
    await resigning
    completed = emitted_events(store.state_changes)[-1]
    assert completed.stage is Stage.COMPLETED
    assert completed.revision == store.item(KEYS.leader_and_isr(NAME)).mod_revision


async def test_a_replica_outside_isr_and_eligible_set_emits_no_event() -> None:
    store = Store()
    store.holds(state(leader=NO_LEADER, isr=(2, 3), replicas=(2, 3)))
    await store.is_known()
    await store.resign()
    assert emitted_events(store.state_changes) == []
