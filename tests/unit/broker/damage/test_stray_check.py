"""The last check of the store before a replica that was set aside is deleted (rule
`other-or-older-store-rejected`)."""

from collections.abc import Sequence

import pytest

from tidelog.model import TopicPartition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.damage.stray_check import MAX_CHECKED_AT_ONCE, StrayCheck, may_delete
from tidelog_broker.storage.strays import Stray
from tidelog_runtime.metadata.schema import (
    ClusterEntry,
    LeaderAndIsr,
    encode,
    encode_leader_and_isr,
)
from unit.broker.broker_parts import KEY, KEYS, on
from unit.broker.fake_log import NAME, TOPIC_ID, state
from unit.broker.flaky_store import FlakyStore
from unit.metadata.virtual_time import virtual_clock

STRAY = Stray(KEY, NAME, "a directory")


@pytest.mark.parametrize(
    ("found", "deletable"),
    [
        (None, True),
        (state(leader=2, isr=(2, 3), replicas=(2, 3)), True),
        (state(leader=2, isr=(2, 3)), False),
        (state(leader=2, isr=(1, 2, 3)), True),
    ],
    ids=["no partition", "not assigned here", "assigned here", "another copy is in sync"],
)
def test_which_strays_are_deletable(found: LeaderAndIsr | None, deletable: bool) -> None:
    assert may_delete(found, TOPIC_ID, 1) is deletable


def test_a_stray_may_be_deleted_though_another_topic_has_its_name() -> None:
    assert may_delete(state(leader=2, isr=(2, 3)), "another-topic-id", 1)


class Store(FlakyStore):
    def __init__(self, cluster_id: str = "here") -> None:
        super().__init__(virtual_clock())
        self.put(KEYS.cluster, encode(ClusterEntry(cluster_id)))

    def holds(self, ranges_to_request: LeaderAndIsr, name: TopicPartition = NAME) -> None:
        self.put(KEYS.leader_and_isr(name), encode_leader_and_isr(ranges_to_request))

    async def check(self, strays: Sequence[Stray] = (STRAY,), seen: int = 0) -> list[Stray]:
        return await StrayCheck(self, KEYS, 1, lambda: "here", lambda: seen)(strays)


async def test_a_stray_that_is_not_assigned_here_may_be_deleted() -> None:
    store = Store()
    store.holds(state(leader=2, isr=(2, 3), replicas=(2, 3)))
    assert await store.check() == [STRAY]


@pytest.mark.rule("other-or-older-store-rejected")
async def test_a_stray_that_is_assigned_here_stays() -> None:
    store = Store()
    store.holds(state(leader=2, isr=(2, 3)))
    assert await store.check() == []


async def test_nothing_is_deleted_while_the_store_is_away() -> None:
    store = Store()
    store.disconnect()
    assert await store.check() == []


@pytest.mark.rule("other-or-older-store-rejected")
async def test_a_wiped_store_deletes_nothing() -> None:
    store = Store()
    store.delete(KEYS.cluster)
    assert await store.check() == []


async def test_the_store_of_another_cluster_deletes_nothing() -> None:
    assert await Store("there").check() == []


async def test_a_store_older_than_the_last_seen_revision_deletes_nothing() -> None:
    store = Store()
    assert await store.check(seen=store.data.revision + 1) == []
    assert await store.check(seen=store.data.revision) == [STRAY]


async def test_an_unreadable_value_deletes_nothing() -> None:
    store = Store()
    store.put(KEYS.leader_and_isr(NAME), b"not JSON")
    assert await store.check() == []


async def test_a_bounded_number_of_strays_is_checked_at_once() -> None:
    strays = [Stray(ReplicaKey(TOPIC_ID, n), on(n), str(n)) for n in range(300)]
    store = Store()
    assert await store.check(strays) == strays[:MAX_CHECKED_AT_ONCE]
    assert len(store.sent) == 1
