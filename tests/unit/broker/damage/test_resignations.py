"""A damaged replica takes itself out of ISR and eligible set, whatever the store does."""

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tidelog.model import NO_LEADER, TopicPartition
from tidelog_broker.damage.resignations import Resignations, resignation
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    LeaderAndIsr,
    Member,
    decode_leader_and_isr,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import MAX_TRANSACTION_CHANGES, StoreUnavailableError
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from unit.broker.broker_parts import KEY, KEYS, change_ids, on
from unit.broker.fake_log import NAME, TOPIC_ID, epoch_of, state
from unit.broker.flaky_store import FlakyStore
from unit.metadata.virtual_time import virtual_clock

OTHER_ID = "other-id-other-id-othe"

# -- what is written ---------------------------------------------------------------------


def test_a_follower_leaves_the_isr() -> None:
    written = resignation(state(leader=2), TOPIC_ID, 1)
    assert written is not None
    assert (written.leader, sorted(written.isr_ids)) == (2, [2, 3])


@pytest.mark.rule("damaged-replica-resigns-first")
@pytest.mark.parametrize("isr", [(1, 2, 3), (2, 3)], ids=["a member", "no member"])
def test_another_leader_gets_a_new_epoch(isr: tuple[int, ...]) -> None:
    """It would else let the replica in for what that held before it was cut: by what it
    knows, by a fetch that comes late, or by an ISR change that has no answer yet."""
    written = resignation(state(leader=2, epoch=5, isr=isr), TOPIC_ID, 1)
    assert written is not None
    assert (written.leader, written.leader_epoch) == (2, 6)
    assert written.leader_broker_epoch == epoch_of(2)


def test_a_leader_stays_as_one_that_is_not_whole() -> None:
    written = resignation(state(leader=1), TOPIC_ID, 1)
    assert written is not None
    assert (written.leader, written.leader_broker_epoch) == (1, NOT_WHOLE)


def test_a_member_without_a_leader_stays_as_one_that_is_not_whole() -> None:
    written = resignation(state(leader=NO_LEADER, isr=(1,)), TOPIC_ID, 1)
    assert written is not None
    assert written.isr == (Member(1, NOT_WHOLE),)


@pytest.mark.parametrize(
    "found",
    [state(leader=NO_LEADER).resigned(1), state(leader=NO_LEADER, isr=(2, 3))],
    ids=["resigned already", "no member"],
)
def test_without_a_leader_the_same_is_written_again(found: LeaderAndIsr) -> None:
    """What it described for a recovery, before it was cut, no longer holds then."""
    assert resignation(found, TOPIC_ID, 1) == found


def test_an_eligible_replica_is_no_longer_elected_as_clean() -> None:
    written = resignation(state(leader=2, isr=(2,), eligible=(1,)), TOPIC_ID, 1)
    assert written is not None
    assert written.eligible == (Member(1, NOT_WHOLE),)


@pytest.mark.parametrize(
    "found",
    [
        None,
        state(leader=NO_LEADER, isr=(2, 3), replicas=(2, 3)),
        state(leader=2, isr=(2, 3), replicas=(2, 3)),
        state(leader=1).resigned(1),
        replace(state(leader=1), topic_id=OTHER_ID),
    ],
    ids=[
        "no partition",
        "no replica",
        "no replica of a leader",
        "resigned already",
        "another topic of that name",
    ],
)
def test_who_is_not_relied_on_has_nothing_to_write(found: LeaderAndIsr | None) -> None:
    assert resignation(found, TOPIC_ID, 1) is None


# -- how it is written -------------------------------------------------------------------


class Store(FlakyStore):
    def __init__(self) -> None:
        super().__init__(virtual_clock())
        self.cache = MetadataCache(KEYS)
        self.told: dict[ReplicaKey, int] = {}
        clock = virtual_clock()
        self.state_changes = StateChangeLog("broker-1", clock)
        self.resignations = Resignations(
            self,
            KEYS,
            self.cache,
            1,
            random.Random(1),
            change_ids(clock),
            self.state_changes,
        )

    def holds(self, wanted: LeaderAndIsr, name: TopicPartition = NAME) -> None:
        self.put(KEYS.leader_and_isr(name), encode_leader_and_isr(wanted))

    async def is_known(self) -> None:
        self.cache.load(await self.snapshot(KEYS.root))

    def partition(self, name: TopicPartition = NAME) -> LeaderAndIsr:
        return decode_leader_and_isr(self.item(KEYS.leader_and_isr(name)).value)

    async def resign(self, key: ReplicaKey = KEY, name: TopicPartition | None = NAME) -> None:
        await self.resign_all([(key, name)])

    async def resign_all(
        self, replicas: Iterable[tuple[ReplicaKey, TopicPartition | None]]
    ) -> None:
        await self.resignations.resign(replicas, self.told.__setitem__)


async def test_a_state_that_is_known_takes_one_transaction() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    await store.resign()
    assert (sorted(store.partition().isr_ids), len(store.sent)) == ([2, 3], 1)


async def test_what_has_changed_since_is_judged_anew() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    store.holds(state(leader=1, epoch=6))
    await store.resign()
    assert store.partition().isr == (
        Member(1, NOT_WHOLE),
        *(Member(b, epoch_of(b)) for b in (2, 3)),
    )


async def test_one_that_was_let_in_unseen_resigns() -> None:
    """What the watch has not brought yet is not taken for true."""
    store = Store()
    store.holds(state(leader=2, isr=(2, 3)))
    await store.is_known()
    store.holds(state(leader=2, isr=(1, 2, 3)))
    await store.resign()
    assert store.partition().isr_ids == {2, 3}


def in_recovery() -> LeaderAndIsr:
    """Every member has lost data, and nobody leads."""
    return state(leader=NO_LEADER, isr=(1, 2)).resigned(1).resigned(2)


async def test_without_a_leader_a_replica_that_is_damaged_again_moves_the_revision() -> None:
    """Rule `best-last-known-log-leads`: it would be elected for what it held when it was
    described."""
    store = Store()
    store.holds(in_recovery())
    await store.is_known()
    described_at = store.item(KEYS.leader_and_isr(NAME)).mod_revision
    await store.resign()
    assert store.told[KEY] == store.item(KEYS.leader_and_isr(NAME)).mod_revision > described_at
    assert (store.partition(), len(store.sent)) == (in_recovery(), 1)


async def test_what_another_wrote_unseen_before_is_not_taken_for_its_own_resignation() -> None:
    """It may have been described since."""
    store = Store()
    store.holds(in_recovery())
    await store.is_known()
    store.holds(in_recovery())
    described_at = store.item(KEYS.leader_and_isr(NAME)).mod_revision
    await store.resign()
    assert store.told[KEY] > described_at


async def test_without_a_leader_a_write_whose_answer_is_lost_is_made_twice_and_not_for_ever() -> (
    None
):
    store = Store()
    store.holds(in_recovery())
    await store.is_known()
    written = [store.item(KEYS.leader_and_isr(NAME)).mod_revision]

    def lose_what_was_applied() -> None:
        revision = store.item(KEYS.leader_and_isr(NAME)).mod_revision
        if revision != written[-1]:
            written.append(revision)
            raise StoreUnavailableError("the answer was lost")

    store.before_answer = lose_what_was_applied
    await store.resign()
    assert len(written) == 3
    assert store.told[KEY] == written[-1]


async def test_a_store_that_is_away_is_asked_until_it_is_back() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    store.disconnect()
    resigning = asyncio.create_task(store.resign())
    await asyncio.sleep(3600)
    assert not resigning.done()
    store.reconnect()
    await resigning
    assert store.partition().isr_ids == {2, 3}


async def test_an_answer_that_was_lost_is_found_out() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    store.loses_answers = True
    resigning = asyncio.create_task(store.resign())
    await asyncio.sleep(1)
    store.loses_answers = False
    await resigning
    assert store.partition().isr_ids == {2, 3}
    assert store.partition().leader_epoch == state().leader_epoch + 1


async def test_it_is_told_from_which_revision_on_nobody_relies_on_the_replica() -> None:
    store = Store()
    store.holds(state(leader=2))
    store.holds(state(leader=1).resigned(1), on(1))
    await store.is_known()
    keys = [ReplicaKey(TOPIC_ID, number) for number in (0, 1, 2)]
    await store.resign_all([(key, on(key.partition)) for key in keys])
    stored = [store.item(KEYS.leader_and_isr(on(number))).mod_revision for number in (0, 1)]
    assert [store.told[key] for key in keys] == [*stored, 0]


async def test_a_partition_that_is_gone_needs_no_resignation() -> None:
    store = Store()
    await store.resign()
    assert store.data.get(KEYS.leader_and_isr(NAME)) is None


async def test_a_replica_known_by_its_id_alone_is_looked_up() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    await store.resign(name=None)
    assert store.partition().isr_ids == {2, 3}


async def test_of_a_topic_that_was_created_again_the_present_one_is_left_alone() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    await store.resign(ReplicaKey(OTHER_ID, 0))
    assert store.partition().isr_ids == {1, 2, 3}


async def test_both_replicas_of_a_name_are_settled() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    await store.resign_all([(ReplicaKey(OTHER_ID, 0), NAME), (KEY, NAME)])
    assert store.partition().isr_ids == {2, 3}


async def test_many_resign_in_few_transactions() -> None:
    store = Store()
    numbers = range(300)
    for number in numbers:
        store.holds(state(leader=2), on(number))
    await store.is_known()
    await store.resign_all([(ReplicaKey(TOPIC_ID, n), on(n)) for n in numbers])
    assert all(store.partition(on(number)).isr_ids == {2, 3} for number in numbers)
    assert len(store.sent) == 3


async def test_each_is_told_when_it_has_resigned_and_none_that_waits() -> None:
    store = Store()
    store.put(KEYS.leader_and_isr(NAME), b"not JSON")
    store.holds(state(leader=2), on(1))
    resigning = asyncio.create_task(
        store.resign_all([(KEY, NAME), (ReplicaKey(TOPIC_ID, 1), on(1))])
    )
    await asyncio.sleep(10)
    assert list(store.told) == [ReplicaKey(TOPIC_ID, 1)]
    resigning.cancel()


async def test_more_unreadable_values_than_a_transaction_takes_hold_up_no_other() -> None:
    store = Store()
    for number in range(MAX_TRANSACTION_CHANGES):
        store.put(KEYS.leader_and_isr(on(number)), b"not JSON")
    last = ReplicaKey(TOPIC_ID, MAX_TRANSACTION_CHANGES)
    store.holds(state(leader=2), on(last.partition))
    keys = [ReplicaKey(TOPIC_ID, number) for number in range(last.partition + 1)]
    resigning = asyncio.create_task(store.resign_all([(key, on(key.partition)) for key in keys]))
    await asyncio.sleep(10)
    assert list(store.told) == [last]
    resigning.cancel()


async def test_a_value_that_cannot_be_read_holds_up_no_other_and_is_waited_for() -> None:
    store = Store()
    store.put(KEYS.leader_and_isr(NAME), b"not JSON")
    store.holds(state(leader=2), on(1))
    await store.is_known()
    resigning = asyncio.create_task(
        store.resign_all([(KEY, NAME), (ReplicaKey(TOPIC_ID, 1), on(1))])
    )
    await asyncio.sleep(10)
    assert store.partition(on(1)).isr_ids == {2, 3}
    assert not resigning.done()
    store.holds(state(leader=2))
    await resigning
    assert store.partition().isr_ids == {2, 3}
