"""Events of a leader's ISR changes."""

import asyncio

from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from unit.broker.broker_parts import KEYS, append, emitted_events, fetch_by, on, stages, until
from unit.broker.fake_log import NAME, TOPIC_ID, state
from unit.broker.replication.test_isr_updates import Leader, running


def emitted(leader: Leader, *kinds: Kind) -> list[StateChange]:
    return emitted_events(leader.state_changes, *kinds)


async def expanded() -> Leader:
    """Broker 3 has joined."""
    leader = Leader()
    partition = leader.with_joiner()
    async with running(leader):
        await leader.evaluate(partition)
    return leader


async def shrunk(lag_max_bytes: int | None = None) -> Leader:
    """Brokers 2 and 3 have left."""
    leader = Leader()
    partition = leader.lead(new_state=state(isr=(1, 2, 3)))
    partition.lag_max_bytes = lag_max_bytes
    append(partition, b"a", b"b")
    for follower, offset in ((2, 1), (3, 0)):
        fetch_by(partition, follower, offset)
    async with running(leader):
        await asyncio.sleep(0 if lag_max_bytes else 0.6)
        await leader.evaluate(partition)
    return leader


async def test_a_change_is_requested_and_completed_at_the_revision_of_the_store() -> None:
    leader = await expanded()
    requested, completed = emitted(leader)
    assert stages((requested, completed)) == ["isr_expand requested", "isr_expand completed"]
    assert completed.revision == leader.store.item(KEYS.leader_and_isr(on(0))).mod_revision
    assert requested.revision < completed.revision


async def test_the_event_is_about_the_partition_and_no_single_replica() -> None:
    requested, _ = emitted(await expanded())
    assert (requested.name, requested.topic_id, requested.broker) == (NAME, TOPIC_ID, -1)
    assert (requested.controller_epoch, requested.leader_epoch) == (1, 5)


async def test_the_change_id_is_in_the_partitions_key_and_in_every_stage() -> None:
    leader = await expanded()
    change = leader.stored().change
    assert change.id == "b1-101-1"
    assert {event.change_id for event in emitted(leader)} == {change.id}
    assert change.cause is Cause.CAUGHT_UP


async def test_a_member_that_leaves_by_time_is_reported_with_its_lag() -> None:
    requested, _ = emitted(await shrunk(), Kind.ISR_SHRINK)
    assert requested.cause is Cause.LAG_TIME
    assert requested.details["brokers"] == [2, 3]
    assert requested.details["end_offsets"] == [1, 0]
    assert requested.details["leader_end_offset"] == 2
    assert requested.details["behind_ms"] == [600, 600]
    assert requested.details["isr"] == [1]


async def test_a_member_that_leaves_by_bytes_is_reported_as_such() -> None:
    requested, _ = emitted(await shrunk(lag_max_bytes=50), Kind.ISR_SHRINK)
    assert requested.cause is Cause.LAG_BYTES


async def test_a_change_applied_without_an_answer_is_completed_once_that_is_found() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.loses_answers = True
    async with running(leader):
        await leader.evaluate(partition)
        leader.store.loses_answers = False
        await until(lambda: len(emitted(leader)) == 2)
    assert stages(emitted(leader)) == ["isr_expand requested", "isr_expand completed"]
    assert emitted(leader)[1].revision == partition.revision


async def test_a_change_that_the_watch_delivers_first_is_completed_too() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.loses_answers = True
    async with running(leader):
        await leader.evaluate(partition)
        item = leader.store.item(KEYS.leader_and_isr(on(0)))
        partition.observed(leader.stored(), item.mod_revision, 0)
        await until(lambda: len(emitted(leader)) == 2)
    assert emitted(leader)[1].stage is Stage.COMPLETED


async def test_a_change_overtaken_by_another_fails() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.overwrite(state(leader=2, epoch=6))
    async with running(leader):
        await leader.evaluate(partition)
    failed = emitted(leader)[-1]
    assert (failed.stage, failed.cause) == (Stage.FAILED, Cause.CONFLICT)


async def test_without_an_answer_only_the_request_is_reported() -> None:
    leader = Leader()
    partition = leader.with_joiner()
    leader.store.disconnect()
    async with running(leader):
        await leader.evaluate(partition)
        await asyncio.sleep(5)
    assert stages(emitted(leader)) == ["isr_expand requested"]
