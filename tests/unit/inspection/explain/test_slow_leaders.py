"""A follower that lags behind one leader only, and keeps up with others, is not the slow one."""

from __future__ import annotations

import pytest

from unit.inspection.explain.described import DescribedCluster, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    """Brokers 1 and 2 follow broker 3 in sea/0, and each other in bay/0 and bay/1."""
    described = DescribedCluster()
    described.partition("sea/0", (3, 1, 2), isr=(3, 1))
    described.partition("sea/1", (3, 2, 1), isr=(3, 2))
    described.partition("bay/0", (1, 2))
    described.partition("bay/1", (2, 1))
    return described


def lags(cluster: DescribedCluster, name: str, broker_id: int) -> None:
    cluster.seen(name, broker_id, log_end_offset=40, lag_records=60, last_fetch_ms=400)


def test_a_follower_that_lags_behind_one_leader_only_is_not_blamed(
    cluster: DescribedCluster,
) -> None:
    lags(cluster, "sea/0", 2)
    lags(cluster, "sea/1", 1)
    slow = found(cluster.explain(), "leader_slow")
    assert "replica_slow" not in causes_of(cluster.explain())
    assert (slow.broker, slow.partitions) == (3, ("sea/0", "sea/1"))
    assert slow.summary.startswith("followers lag behind broker 3 and keep up with other leaders")
    assert "broker 2 keeps up with broker 1" in text_of(slow)
    assert "network between broker 3 and the followers that are named" in slow.next_step
    assert "ping -c 100" in slow.next_step


def test_a_follower_that_lags_behind_two_leaders_is_slow_itself(
    cluster: DescribedCluster,
) -> None:
    lags(cluster, "sea/0", 2)
    lags(cluster, "bay/0", 2)
    assert found(cluster.explain("sea", 0), "replica_slow").broker == 2


def test_a_follower_of_a_single_leader_cannot_be_compared(cluster: DescribedCluster) -> None:
    cluster.unheard(2)
    lags(cluster, "sea/0", 2)
    assert found(cluster.explain("sea", 0), "replica_slow").broker == 2
