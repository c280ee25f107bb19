"""A produce that is sent again waits like its original and gets the same answer."""

import asyncio

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import FIRST_NAMED_PRODUCER_ID, Acks, Batch
from tidelog.record_batch import without_deltas
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.requests.batch_checks import BatchChecks
from tidelog_broker.requests.produce import Produce, ProduceEntry, ProduceOutcome
from unit.broker.broker_parts import Replicas, fetch_by, holder_change, in_place, on, until_idle
from unit.broker.fake_log import sent_by, state

ID = 7


NAMED = FIRST_NAMED_PRODUCER_ID + 1


class Front:
    def __init__(self) -> None:
        self.replicas = Replicas()

    async def send(
        self, *batches: Batch, acks: Acks = Acks.ALL, timeout_ms: int = 1000, number: int = 0
    ) -> ProduceOutcome:
        replicas = self.replicas
        checks = BatchChecks(lambda _: 0, without_deltas, in_place)
        produce = Produce(replicas.manager, replicas.purgatory, replicas.clock, checks)
        (outcome,) = await produce.handle([ProduceEntry(on(number), "", batches)], acks, timeout_ms)
        return outcome

    def sending(self, *batches: Batch) -> asyncio.Task[ProduceOutcome]:
        return asyncio.create_task(self.send(*batches))


def code_of(outcome: ProduceOutcome) -> ErrorCode:
    assert outcome.error is not None
    return outcome.error.code


def catch_up(partition: Partition) -> None:
    for follower in (2, 3):
        fetch_by(partition, follower)


@pytest.mark.rule("waiting-produce-ends-with-epoch")
async def test_a_duplicate_of_an_uncommitted_batch_waits_with_its_original() -> None:
    front = Front()
    partition = await front.replicas.lead()
    original, again = front.sending(sent_by(ID, 0)), front.sending(sent_by(ID, 0))
    await until_idle()
    fetch_by(partition, 2)
    await until_idle()
    assert not again.done()
    fetch_by(partition, 3)
    assert await again == await original
    assert partition.log.log_end_offset == 1


async def test_a_duplicate_of_a_committed_batch_is_answered_at_once() -> None:
    front = Front()
    partition = await front.replicas.lead()
    original = front.sending(sent_by(ID, 0))
    await until_idle()
    catch_up(partition)
    assert await front.send(sent_by(ID, 0)) == await original
    assert front.replicas.clock.monotonic_ms() == 0


async def test_a_duplicate_ends_as_its_original_when_the_leadership_ends() -> None:
    """Rule `waiting-produce-ends-with-epoch`: the records that were to be committed may be cut."""
    front = Front()
    await front.replicas.lead()
    original, again = front.sending(sent_by(ID, 0)), front.sending(sent_by(ID, 0))
    await until_idle()
    await front.replicas.take(state(leader=2, epoch=6), revision=11)
    assert code_of(await original) is ErrorCode.LEADER_CHANGED
    assert code_of(await again) is ErrorCode.LEADER_CHANGED


async def test_a_duplicate_at_the_next_leader_waits_until_that_leader_has_committed_it() -> None:
    front = Front()
    partition = await front.replicas.lead()
    original = front.sending(sent_by(ID, 0))
    await until_idle()
    await front.replicas.take(state(epoch=6), revision=11)
    await original
    again = front.sending(sent_by(ID, 0))
    await until_idle()
    assert not again.done()
    catch_up(partition)
    outcome = await again
    assert outcome.appended is not None
    assert (outcome.appended.base_offset, outcome.appended.leader_epoch) == (0, 5)


@pytest.mark.parametrize("acks", [Acks.NONE, Acks.LEADER])
async def test_without_acks_all_a_duplicate_does_not_wait(acks: Acks) -> None:
    front = Front()
    await front.replicas.lead()
    first = await front.send(sent_by(ID, 0), acks=acks)
    assert await front.send(sent_by(ID, 0), acks=acks) == first


async def old_duplicate(front: Front) -> Partition:
    """A batch 0 that is no longer remembered; nothing is committed."""
    partition = await front.replicas.lead()
    for sequence in range(6):
        await front.send(sent_by(ID, sequence), acks=Acks.LEADER)
    return partition


async def test_a_batch_no_longer_remembered_is_a_duplicate_with_an_unknown_offset() -> None:
    front = Front()
    catch_up(await old_duplicate(front))
    outcome = await front.send(sent_by(ID, 0))
    assert code_of(outcome) is ErrorCode.DUPLICATE_SEQUENCE
    assert outcome.appended is None


@pytest.mark.rule("waiting-produce-ends-with-epoch")
async def test_an_old_duplicate_is_not_answered_before_it_is_committed() -> None:
    """The client takes the answer for a success."""
    front = Front()
    partition = await old_duplicate(front)
    again = front.sending(sent_by(ID, 0))
    await until_idle()
    assert not again.done()
    catch_up(partition)
    assert code_of(await again) is ErrorCode.DUPLICATE_SEQUENCE


async def test_an_old_duplicate_that_is_not_committed_in_time_times_out() -> None:
    front = Front()
    await old_duplicate(front)
    outcome = await front.send(sent_by(ID, 0), timeout_ms=250)
    assert code_of(outcome) is ErrorCode.REQUEST_TIMED_OUT


async def test_new_and_old_batches_are_all_replicated_before_the_answer() -> None:
    front = Front()
    partition = await front.replicas.lead()
    await front.send(sent_by(ID, 0), acks=Acks.LEADER)
    sending = front.sending(sent_by(ID, 0), sent_by(ID, 1))
    await until_idle()
    for follower in (2, 3):
        fetch_by(partition, follower, 1)
    await until_idle()
    assert not sending.done()
    catch_up(partition)
    assert code_of(await sending) is ErrorCode.DUPLICATE_SEQUENCE
    assert partition.log.log_end_offset == 2


async def test_a_batch_out_of_order_is_rejected_and_may_be_sent_again() -> None:
    front = Front()
    await front.replicas.lead()
    await front.send(sent_by(ID, 0), acks=Acks.LEADER)
    outcome = await front.send(sent_by(ID, 2))
    assert code_of(outcome) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert outcome.error is not None
    assert outcome.error.retriable


# -- producers with a name ---------------------------------------------------------------


@pytest.mark.rule("name-holder-fences-previous")
async def test_a_previous_holder_writes_nowhere_once_the_watch_has_delivered_the_next() -> None:
    front = Front()
    _, partition = await front.replicas.take(numbers=(0, 1))
    await front.send(sent_by(NAMED, 0), acks=Acks.LEADER, number=1)
    front.replicas.cache.apply([holder_change(NAMED, 1)])
    await front.send(sent_by(NAMED, 0, epoch=1), acks=Acks.LEADER, number=0)
    for batch in (sent_by(NAMED, 1), sent_by(NAMED, 0)):
        outcome = await front.send(batch, acks=Acks.LEADER, number=1)
        assert code_of(outcome) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert partition.log.log_end_offset == 1
    again = await front.send(sent_by(NAMED, 1, epoch=1), acks=Acks.LEADER, number=1)
    assert again.appended is not None


async def test_a_holder_that_the_watch_has_not_delivered_yet_writes() -> None:
    """Its fence, or its first batch, arrives before the update of the watch."""
    front = Front()
    await front.replicas.lead()
    front.replicas.cache.apply([holder_change(NAMED, 0)])
    assert (await front.send(sent_by(NAMED, 0, epoch=1), acks=Acks.LEADER)).appended is not None


async def test_the_name_of_one_producer_fences_no_other() -> None:
    front = Front()
    await front.replicas.lead()
    front.replicas.cache.apply([holder_change(NAMED + 1, 7)])
    for producer in (ID, NAMED):
        assert (await front.send(sent_by(producer, 0), acks=Acks.LEADER)).appended is not None
