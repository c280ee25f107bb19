"""How long no write may succeed, by kind and circumstances."""

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
        ("kill_etcd_member", 250),
        ("kill_all_etcd", 250),
        ("kill_controller", 250),
    ],
)
def test_each_kind_has_its_bound(kind: str, limit: int) -> None:
    assert limit_ms(kind) == limit


def test_where_the_controller_ignored_a_crash_the_lease_decides() -> None:
    assert limit_ms("kill_leader", ignored=True) == 5_000


def test_what_nobody_should_notice_is_measured_against_ordinary_times() -> None:
    assert limit_ms("kill_controller", ordinary_gap_ms=400) == 400
