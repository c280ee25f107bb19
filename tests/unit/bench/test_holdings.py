"""Balance, and the minimum number of copies that achieves it."""

from bench.grow.holdings import (
    Holdings,
    copied,
    fewest_to_grow,
    fewest_to_remove,
    holdings_of,
    spread,
)
from tidelog.client.descriptions import PartitionDescription, TopicDescription
from tidelog.model import TopicPartition


def holdings(*replicas: tuple[int, ...]) -> Holdings:
    return Holdings(
        {TopicPartition("sea", p): held for p, held in enumerate(replicas)},
        {TopicPartition("sea", p): held[0] for p, held in enumerate(replicas)},
    )


def test_empty_brokers_count_for_the_spread() -> None:
    held = holdings((1, 2), (2, 1), (1, 2))

    assert held.replicas_by_broker([1, 2, 3]) == {1: 3, 2: 3, 3: 0}
    assert held.leaders_by_broker([1, 2, 3]) == {1: 2, 2: 1, 3: 0}
    assert spread(held.leaders_by_broker([1, 2, 3])) == 2


def test_new_brokers_lack_an_equal_share_rounded_down() -> None:
    # 7 replicas over 4 brokers: one for each.
    before = holdings((1, 2), (2, 1), (1, 2), (1,))

    assert fewest_to_grow(before, [1, 2, 3, 4]) == 2


def test_an_underfilled_old_broker_is_filled_too() -> None:
    before = holdings((1,), (1,), (1,), (1,), (1,), (2,))

    assert fewest_to_grow(before, [1, 2, 3]) == 1 + 2


def test_replicas_of_a_removed_broker_have_to_be_copied() -> None:
    assert fewest_to_remove(holdings((1, 2), (2, 3), (3, 1)), [3]) == 2


def test_a_replica_on_another_broker_is_a_copy_and_a_reordering_is_not() -> None:
    before = holdings((1, 2), (2, 3), (3, 1))
    after = holdings((2, 1), (2, 4), (5, 4))

    assert copied(before, after) == 3


def test_topic_descriptions_yield_holders_and_running_moves() -> None:
    partition = PartitionDescription(0, 1, 4, (1, 2, 3), (1, 3), (), (), -1, 2, "grow")
    topic = TopicDescription("sea", "", 3, {}, (partition,), 1)

    found = holdings_of([topic])

    name = TopicPartition("sea", 0)
    assert found == Holdings({name: (1, 2, 3)}, {name: 1}, moving=1, out_of_sync=1)
