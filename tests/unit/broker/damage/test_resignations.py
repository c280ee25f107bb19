"""A damaged replica removes itself from the ISR and the eligible set, whatever the store does."""

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

# -- the written state -------------------------------------------------------------------


def test_a_damaged_follower_leaves_the_isr() -> None:
    written = resignation(state(leader=2), TOPIC_ID, 1)
    assert written is not None
    assert (written.leader, sorted(written.isr_ids)) == (2, [2, 3])


@pytest.mark.rule("damaged-replica-resigns-first")
@pytest.mark.parametrize("isr", [(1, 2, 3), (2, 3)], ids=["a member", "no member"])
def test_a_resignation_to_another_leader_raises_the_epoch(isr: tuple[int, ...]) -> None:
    """Otherwise that leader would admit the replica for what it held before it was cut: by
    recorded progress, by a late fetch, or by an ISR change without an answer.
    """
    written = resignation(state(leader=2, epoch=5, isr=isr), TOPIC_ID, 1)
    assert written is not None
    assert (written.leader, written.leader_epoch) == (2, 6)
    assert written.leader_broker_epoch == epoch_of(2)


def test_a_leader_stays_as_a_member_that_is_not_intact() -> None:
    written = resignation(state(leader=1), TOPIC_ID, 1)
    assert written is not None
    assert (written.leader, written.leader_broker_epoch) == (1, NOT_WHOLE)


def test_a_member_without_a_leader_stays_as_not_intact() -> None:
    written = resignation(state(leader=NO_LEADER, isr=(1,)), TOPIC_ID, 1)
    assert written is not None
    assert written.isr == (Member(1, NOT_WHOLE),)


@pytest.mark.parametrize(
    "found",
    [state(leader=NO_LEADER).resigned(1), state(leader=NO_LEADER, isr=(2, 3))],
    ids=["resigned already", "no member"],
)
def test_without_a_leader_the_same_state_is_written_again(found: LeaderAndIsr) -> None:
    """The description for a recovery from before the cut is no longer valid then."""
    assert resignation(found, TOPIC_ID, 1) == found


def test_a_resigned_eligible_replica_is_no_longer_elected_as_clean() -> None:
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
def test_a_replica_that_no_leader_relies_on_has_nothing_to_write(
    found: LeaderAndIsr | None,
) -> None:
    assert resignation(found, TOPIC_ID, 1) is None


# -- the write ---------------------------------------------------------------------------


class Store(FlakyStore):
    def __init__(self) -> None:
        super().__init__(virtual_clock())
        self.cache = MetadataCache(KEYS)
        self.resigned_at: dict[ReplicaKey, int] = {}
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

    def holds(self, ranges_to_request: LeaderAndIsr, name: TopicPartition = NAME) -> None:
        self.put(KEYS.leader_and_isr(name), encode_leader_and_isr(ranges_to_request))

    async def is_known(self) -> None:
        self.cache.load(await self.snapshot(KEYS.root))

    def partition(self, name: TopicPartition = NAME) -> LeaderAndIsr:
        return decode_leader_and_isr(self.item(KEYS.leader_and_isr(name)).value)

    async def resign(self, key: ReplicaKey = KEY, name: TopicPartition | None = NAME) -> None:
        await self.resign_all([(key, name)])

    async def resign_all(
        self, replicas: Iterable[tuple[ReplicaKey, TopicPartition | None]]
    ) -> None:
        await self.resignations.resign(replicas, self.resigned_at.__setitem__)


async def test_a_known_state_takes_one_transaction() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    await store.resign()
    assert (sorted(store.partition().isr_ids), len(store.sent)) == ([2, 3], 1)


async def test_a_changed_state_is_evaluated_again() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    store.holds(state(leader=1, epoch=6))
    await store.resign()
    assert store.partition().isr == (
        Member(1, NOT_WHOLE),
        *(Member(b, epoch_of(b)) for b in (2, 3)),
    )


async def test_a_replica_admitted_unseen_resigns() -> None:
    """The cached state may be older than the store's."""
    store = Store()
    store.holds(state(leader=2, isr=(2, 3)))
    await store.is_known()
    store.holds(state(leader=2, isr=(1, 2, 3)))
    await store.resign()
    assert store.partition().isr_ids == {2, 3}


def in_recovery() -> LeaderAndIsr:
    """Every member has lost data, and no replica leads."""
    return state(leader=NO_LEADER, isr=(1, 2)).resigned(1).resigned(2)


async def test_without_a_leader_another_resignation_raises_the_revision() -> None:
    """Rule `best-last-known-log-leads`: otherwise it would be elected for the log that it
    described before."""
    store = Store()
    store.holds(in_recovery())
    await store.is_known()
    described_at = store.item(KEYS.leader_and_isr(NAME)).mod_revision
    await store.resign()
    assert (
        store.resigned_at[KEY] == store.item(KEYS.leader_and_isr(NAME)).mod_revision > described_at
    )
    assert (store.partition(), len(store.sent)) == (in_recovery(), 1)


async def test_an_unseen_write_of_another_client_is_not_taken_for_its_own_resignation() -> None:
    """The replica may have been described since."""
    store = Store()
    store.holds(in_recovery())
    await store.is_known()
    store.holds(in_recovery())
    described_at = store.item(KEYS.leader_and_isr(NAME)).mod_revision
    await store.resign()
    assert store.resigned_at[KEY] > described_at


async def test_without_a_leader_a_write_with_a_lost_answer_is_repeated_once_and_not_forever() -> (
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
    assert store.resigned_at[KEY] == written[-1]


async def test_a_store_that_is_away_is_retried_until_it_is_back() -> None:
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


async def test_a_resignation_whose_answer_was_lost_is_recognized() -> None:
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


async def test_the_revision_since_which_the_replica_does_not_count_is_reported() -> None:
    store = Store()
    store.holds(state(leader=2))
    store.holds(state(leader=1).resigned(1), on(1))
    await store.is_known()
    keys = [ReplicaKey(TOPIC_ID, number) for number in (0, 1, 2)]
    await store.resign_all([(key, on(key.partition)) for key in keys])
    stored = [store.item(KEYS.leader_and_isr(on(number))).mod_revision for number in (0, 1)]
    assert [store.resigned_at[key] for key in keys] == [*stored, 0]


async def test_a_deleted_partition_needs_no_resignation() -> None:
    store = Store()
    await store.resign()
    assert store.data.get(KEYS.leader_and_isr(NAME)) is None


async def test_a_replica_known_by_its_id_alone_is_looked_up() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    await store.resign(name=None)
    assert store.partition().isr_ids == {2, 3}


async def test_a_resignation_leaves_the_recreated_topic_of_the_same_name_alone() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    await store.resign(ReplicaKey(OTHER_ID, 0))
    assert store.partition().isr_ids == {1, 2, 3}


async def test_both_replicas_of_a_name_are_handled() -> None:
    store = Store()
    store.holds(state(leader=2))
    await store.is_known()
    await store.resign_all([(ReplicaKey(OTHER_ID, 0), NAME), (KEY, NAME)])
    assert store.partition().isr_ids == {2, 3}


async def test_many_resignations_take_few_transactions() -> None:
    store = Store()
    numbers = range(300)
    for number in numbers:
        store.holds(state(leader=2), on(number))
    await store.is_known()
    await store.resign_all([(ReplicaKey(TOPIC_ID, n), on(n)) for n in numbers])
    assert all(store.partition(on(number)).isr_ids == {2, 3} for number in numbers)
    assert len(store.sent) == 3


async def test_each_resigned_replica_is_reported_and_waiting_ones_are_not() -> None:
    store = Store()
    store.put(KEYS.leader_and_isr(NAME), b"not JSON")
    store.holds(state(leader=2), on(1))
    resigning = asyncio.create_task(
        store.resign_all([(KEY, NAME), (ReplicaKey(TOPIC_ID, 1), on(1))])
    )
    await asyncio.sleep(10)
    assert list(store.resigned_at) == [ReplicaKey(TOPIC_ID, 1)]
    resigning.cancel()


async def test_more_unreadable_values_than_a_transaction_holds_block_no_other_replica() -> None:
    store = Store()
    for number in range(MAX_TRANSACTION_CHANGES):
        store.put(KEYS.leader_and_isr(on(number)), b"not JSON")
    last = ReplicaKey(TOPIC_ID, MAX_TRANSACTION_CHANGES)
    store.holds(state(leader=2), on(last.partition))
    keys = [ReplicaKey(TOPIC_ID, number) for number in range(last.partition + 1)]
    resigning = asyncio.create_task(store.resign_all([(key, on(key.partition)) for key in keys]))
    await asyncio.sleep(10)
    assert list(store.resigned_at) == [last]
    resigning.cancel()


async def test_an_unreadable_value_blocks_no_other_replica_and_is_awaited() -> None:
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
