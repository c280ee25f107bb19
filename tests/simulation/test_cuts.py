"""Cuts between live processes: in one direction, and of a leader from its followers alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.faults import Fault
from simulation.network import Conditions
from simulation.scenario import run_seed
from simulation.world import World
from tidelog.model import TopicPartition
from tidelog_runtime.metadata.schema import LeaderAndIsr, decode_leader_and_isr

SEED = 5
CUT_MS = 15_000
HALVES = [
    (host, far, direction)
    for host, far in (
        ("broker-1", "etcd"),
        ("broker-1", "controllers"),
        ("broker-1", "brokers"),
        ("controller-1", "etcd"),
    )
    for direction in ("in", "out")
]


@pytest.mark.parametrize(("host", "far", "direction"), HALVES)
def test_a_cut_in_one_direction_does_no_harm_and_is_recovered_from(
    host: str, far: str, direction: str
) -> None:
    plan = [Fault(8_000, "half_cut", (host, far, direction), CUT_MS)]
    result = run_seed(SEED, plan)
    assert result.violation is None, result.message


@pytest.mark.parametrize("direction", ["both", "in", "out"])
def test_a_leader_that_its_followers_cannot_reach_is_deposed(direction: str) -> None:
    result = run_seed(SEED, [Fault(8_000, "cut_leader", (direction,), CUT_MS)])
    assert result.violation is None, result.message
    assert result.rules["leader deposed on reports"] > 0


class Writer:
    """A topic of one partition, and a producer that writes one record at a time."""

    def __init__(self, world: World) -> None:
        self.world = world

    def state(self) -> LeaderAndIsr:
        key = self.world.keys.leader_and_isr(TopicPartition("sea", 0))
        item = self.world.store_data.get(key)
        assert item is not None
        return decode_leader_and_isr(item.value)

    async def write_through(self, cut: Callable[[LeaderAndIsr], Callable[[str, str], bool]]) -> int:
        """Cuts links, chosen by the partition's state then, and writes for CUT_MS.

        Returns the longest time that one record took, in milliseconds.
        """
        client = self.world.client("producer")
        async with client.admin() as admin:
            await admin.create_topic("sea", partitions=1, replication_factor=3)
        longest_ms = 0
        async with client.producer() as producer:
            await (await producer.send("sea", b"before"))
            began_ms = self.world.now_ms
            self.world.network.disturb(cut(self.state()), Conditions(cut=True))
            while (sent_ms := self.world.now_ms) < began_ms + CUT_MS:
                await (await producer.send("sea", b"%d" % sent_ms))
                longest_ms = max(longest_ms, self.world.now_ms - sent_ms)
        return longest_ms


def run_through(
    cut: Callable[[LeaderAndIsr], Callable[[str, str], bool]],
) -> tuple[int, LeaderAndIsr, LeaderAndIsr]:
    """Returns the longest write, and the partition's state before the cut and at its end."""
    world = World(SEED)
    before: list[LeaderAndIsr] = []

    def noting(state: LeaderAndIsr) -> Callable[[str, str], bool]:
        before.append(state)
        return cut(state)

    writer = Writer(world)

    async def main() -> int:
        return await world.client("producer").spawn(writer.write_through(noting))

    try:
        longest_ms = world.run(main())
        return longest_ms, before[0], writer.state()
    finally:
        world.close()


def from_leader(far: str, state: LeaderAndIsr) -> Callable[[str, str], bool]:
    leader = f"broker-{state.leader}"
    return lambda a, b: a == leader and b.startswith(far)


def to_leader(far: str, state: LeaderAndIsr) -> Callable[[str, str], bool]:
    leader = f"broker-{state.leader}"
    return lambda a, b: b == leader and a.startswith(far)


def both_ways(far: str, state: LeaderAndIsr) -> Callable[[str, str], bool]:
    there, back = from_leader(far, state), to_leader(far, state)
    return lambda a, b: there(a, b) or back(a, b)


@pytest.mark.parametrize("cut", [from_leader, both_ways])
def test_writes_go_on_under_another_leader_where_one_cannot_keep_its_lease(
    cut: Callable[[str, LeaderAndIsr], Callable[[str, str], bool]],
) -> None:
    longest_ms, before, after = run_through(lambda state: cut("etcd", state))
    assert after.leader != before.leader
    assert longest_ms < CUT_MS


def test_a_leader_that_hears_nothing_from_etcd_goes_on() -> None:
    longest_ms, before, after = run_through(lambda state: to_leader("etcd", state))
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert longest_ms < CUT_MS


@pytest.mark.parametrize("cut", [from_leader, to_leader, both_ways])
def test_a_leader_that_no_controller_reaches_goes_on(
    cut: Callable[[str, LeaderAndIsr], Callable[[str, str], bool]],
) -> None:
    longest_ms, before, after = run_through(lambda state: cut("controller-", state))
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert longest_ms < CUT_MS


@pytest.mark.parametrize("cut", [from_leader, to_leader, both_ways])
def test_writes_go_on_while_a_leader_is_cut_off_from_all_its_followers(
    cut: Callable[[str, LeaderAndIsr], Callable[[str, str], bool]],
) -> None:
    longest_ms, before, after = run_through(lambda state: cut("broker-", state))
    assert after.leader != before.leader
    assert len(after.isr) >= after.min_isr
    assert longest_ms < CUT_MS


def test_one_follower_that_is_cut_off_deposes_no_leader() -> None:
    def cut(state: LeaderAndIsr) -> Callable[[str, str], bool]:
        follower = next(b for b in state.replicas if b != state.leader)
        pair = {f"broker-{state.leader}", f"broker-{follower}"}
        return lambda a, b: {a, b} == pair

    longest_ms, before, after = run_through(cut)
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert len(after.isr) == 2
    assert longest_ms < CUT_MS
