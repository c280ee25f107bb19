"""Bounds on the time without a successful write, by fault kind and circumstances."""

import pytest

from faults.catalogue import KINDS, Circumstances, Timings

TIMINGS = Timings(lease_ms=3_000, lag_ms=2_000)


def limit_ms(kind: str, ordinary_gap_ms: int = 100, *, ignored: bool = False) -> int:
    bound_of = KINDS[kind].bound
    assert bound_of is not None
    return bound_of(Circumstances(TIMINGS, ordinary_gap_ms, ignored)).limit_ms


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        ("kill_leader", 1_000),
        ("pause_leader", 4_000),
        ("cut_off_leader", 4_000),
        ("cut_follower", 3_000),
        ("cut_leader_from_followers", 5_000),
        ("start_second_process", 250),
        ("start_copied_process", 250),
        ("start_second_while_paused", 4_000),
        ("take_over_by_copy", 4_000),
        ("flip_byte_of_leader", 1_000),
        ("fill_disk", 5_000),
        ("kill_etcd_member", 250),
        ("kill_all_etcd", 250),
        ("kill_controller", 250),
    ],
)
def test_each_kind_has_its_bound(kind: str, limit: int) -> None:
    assert limit_ms(kind) == limit


def test_where_the_controller_ignored_a_crash_the_lease_expiry_is_the_bound() -> None:
    assert limit_ms("kill_leader", ignored=True) == 5_000


def test_a_full_disk_delays_the_partitions_of_its_followers_for_the_lag_time() -> None:
    bound_of = KINDS["fill_disk"].bound
    assert bound_of is not None
    assert bound_of(Circumstances(Timings(3_000, 10_000), 100)).limit_ms == 11_000


def test_imperceptible_faults_are_compared_with_quiet_times() -> None:
    assert limit_ms("kill_controller", ordinary_gap_ms=400) == 400
