"""Content of a plan: every possible kind, the named stories, and seeded mixtures."""

import pytest

from faults.catalogue import KINDS, Ability, left_out
from faults.container_cluster import LEASE_MS
from faults.local_cluster import LEASE_TTL_S
from faults.plan import (
    ALONE_ONLY,
    BESIDE,
    MATRIX,
    ONE_AT_A_TIME,
    ROUND_TRIP,
    SHORT_RUN_S,
    STORIES,
    TRUNCATION,
    Plan,
    Step,
    make_plan,
)

ALL = frozenset(KINDS)
LONG_S = 600.0
SEEDS = range(1, 61)


def names(plan_runs: tuple[tuple[object, ...], ...]) -> list[str]:
    return [step.name for steps in plan_runs for step in steps]  # type: ignore[attr-defined]


def test_every_kind_is_planned_alone_where_time_allows() -> None:
    plan = make_plan(ALL, runs=3, seconds=LONG_S, seed=1)

    assert set(KINDS) <= set(names(plan.runs))
    assert plan.no_time == ()


def test_every_story_is_planned_where_time_allows() -> None:
    plan = make_plan(ALL, runs=3, seconds=LONG_S, seed=1)

    assert {story.name for story in STORIES} <= set(names(plan.runs))


def test_kinds_that_the_cluster_lacks_are_omitted_with_a_reason() -> None:
    abilities = frozenset(Ability) - {Ability.FULL_DISK, Ability.CLOCK}
    reported = left_out(abilities, {Ability.FULL_DISK: "mount: permission denied"})

    needs = {name: kind.needs for name, kind in KINDS.items()}
    assert {needs[name] for name in reported} == {Ability.FULL_DISK, Ability.CLOCK}
    for name, why in reported.items():
        lacks = f"this cluster lacks {needs[name].value}"
        is_disk = needs[name] is Ability.FULL_DISK
        assert why == (f"{lacks}: mount: permission denied" if is_disk else lacks)


def test_kinds_without_time_are_omitted_by_name() -> None:
    plan = make_plan(ALL, runs=1, seconds=60, seed=1)

    assert set(plan.no_time) | set(plan.kinds) >= set(KINDS)
    assert plan.no_time
    assert not set(plan.no_time) & {*plan.kinds, *names(plan.runs)}


def test_kinds_planned_only_in_a_mixture_are_omitted_by_name_in_a_longer_run() -> None:
    plan = make_plan(ALL, runs=1, seconds=SHORT_RUN_S, seed=1)

    assert set(plan.no_time) | set(names(plan.runs)) >= {*KINDS, *(s.name for s in STORIES)}
    assert any(name.startswith("mixed: ") for name in plan.no_time)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_broker_dies_before_the_leader_that_is_killed_alone(seed: int) -> None:
    plan = make_plan(ALL, runs=3, seconds=SHORT_RUN_S, seed=seed)

    assert [steps[0].name for steps in plan.runs].count("kill_leader") == 1


def mixtures(plan: Plan) -> list[Step]:
    return [step for steps in plan.runs for step in steps if step.name == "mixed"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_plan_has_every_kind_alone_every_story_and_every_kind_in_a_mixture(
    seed: int,
) -> None:
    plan = make_plan(ALL, runs=3, seconds=SHORT_RUN_S, seed=seed)

    assert plan.no_time == ()
    assert set(names(plan.runs)) == {*KINDS, *(story.name for story in STORIES), "mixed"}
    assert {kind for step in mixtures(plan) for kind in step.kinds} == set(KINDS)
    assert all(sum(step.expected_s for step in steps) <= SHORT_RUN_S for steps in plan.runs)


@pytest.mark.parametrize("seconds", [60, 90, 120, 180, 240])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_of_a_minute_or_more_has_at_least_twelve_kinds(seed: int, seconds: float) -> None:
    plan = make_plan(ALL, runs=1, seconds=seconds, seed=seed)

    assert len(plan.kinds) >= 12
    # Tenths of a second have no exact sum.
    assert round(sum(step.expected_s for step in plan.runs[0]), 3) <= seconds


@pytest.mark.parametrize("seconds", [60, 120, 180, 240])
def test_in_a_short_run_faults_last_only_until_their_effect(
    seconds: float,
) -> None:
    plan = make_plan(ALL, runs=3, seconds=seconds, seed=1)

    lasting = {fault.kind: fault.seconds for step in mixtures(plan) for fault in step.faults}
    longer = {"kill_all_etcd": 10, "kill_controller": 5, "start_copied_process": 12}
    assert lasting == {kind: longer.get(kind, min(3, KINDS[kind].seconds)) for kind in lasting}


@pytest.mark.parametrize("seconds", [120, SHORT_RUN_S])
@pytest.mark.parametrize("seed", SEEDS)
def test_mixtures_keep_a_possible_leader_and_every_measurement(seed: int, seconds: float) -> None:
    for step in mixtures(make_plan(ALL, runs=3, seconds=seconds, seed=seed)):
        assert len(set(step.kinds)) == len(step.kinds) >= 2
        assert all(len(family.intersection(step.kinds)) <= 1 for family in ONE_AT_A_TIME)
        for kind in ALONE_ONLY.intersection(step.kinds):
            [beside] = [other for other in step.kinds if other != kind]
            assert beside in BESIDE[kind]


def test_a_kind_without_a_compatible_partner_is_planned_alone() -> None:
    plan = make_plan(["flip_bit", "kill_leader", "pause_leader"], runs=1, seconds=600, seed=1)

    assert "flip_bit" in names(plan.runs)
    assert {kind for step in mixtures(plan) for kind in step.kinds} == {
        "kill_leader",
        "pause_leader",
    }


def test_the_expected_duration_is_within_the_limit() -> None:
    plan = make_plan(ALL, runs=3, seconds=SHORT_RUN_S, seed=3)

    assert all(sum(step.expected_s for step in steps) <= SHORT_RUN_S for steps in plan.runs)


def test_a_seed_reproduces_its_plan() -> None:
    first = make_plan(ALL, runs=3, seconds=LONG_S, seed=7)

    assert first == make_plan(ALL, runs=3, seconds=LONG_S, seed=7)
    assert first != make_plan(ALL, runs=3, seconds=LONG_S, seed=8)


def test_the_matrix_has_eight_cells() -> None:
    cells = {(fault.kind, fault.times) for step in MATRIX for fault in step.faults}

    assert cells == {
        (f"{how}_{whom}", times)
        for how in ("stop", "kill")
        for whom in ("leader", "controller")
        for times in (1, 5)
    }


def test_the_round_trip_has_a_partition_a_pause_and_a_cut_client_under_latency() -> None:
    latency, *others = ROUND_TRIP.faults

    assert latency.kind == "delay_clients"
    assert {fault.kind for fault in others} == {
        "cut_leader_from_followers",
        "pause_leader",
        "cut_off_clients",
    }
    assert all(fault.at_s > latency.at_s and fault.end_s < latency.end_s for fault in others)


@pytest.mark.parametrize("lease_ms", [LEASE_MS, LEASE_TTL_S * 1000])
def test_a_controller_stays_killed_until_another_can_be_elected(lease_ms: int) -> None:
    plans = [make_plan(ALL, runs=3, seconds=seconds, seed=1) for seconds in (120, LONG_S)]
    faults = [fault for plan in plans for steps in plan.runs for s in steps for fault in s.faults]

    killed = [fault.seconds * 1000 for fault in faults if fault.kind == "kill_controller"]
    assert min(killed) >= lease_ms + 2_000


def test_truncation_has_several_failovers() -> None:
    assert sum(fault.times for fault in TRUNCATION.faults) >= 4


def test_a_story_continues_without_the_impossible_kinds() -> None:
    plan = make_plan(["delay_clients", "pause_leader"], runs=1, seconds=LONG_S, seed=1)
    story = next(step for step in plan.runs[0] if step.name == "round_trip")

    assert [fault.kind for fault in story.faults] == ["delay_clients", "pause_leader"]


def test_a_single_requested_name_is_repeated() -> None:
    plan = make_plan(ALL, runs=2, seconds=100, seed=1, only="kill_leader")

    assert set(names(plan.runs)) == {"kill_leader"}
    assert all(len(steps) > 1 for steps in plan.runs)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'kill_laeder' cannot be injected here.*kill_leader"):
        make_plan(ALL, runs=1, seconds=60, seed=1, only="kill_laeder")


def test_an_impossible_kind_cannot_be_requested() -> None:
    with pytest.raises(ValueError, match="cannot be injected here"):
        make_plan(["kill_leader"], runs=1, seconds=60, seed=1, only="skew_clock")


def test_mixtures_leave_a_possible_leader() -> None:
    plan = make_plan(ALL, runs=1, seconds=5_000, seed=2, only="mixed")

    assert not ALONE_ONLY.intersection(plan.kinds)
    assert all(not step.is_single for step in plan.runs[0])


def test_unsupported_kinds_are_omitted_by_name_and_reason() -> None:
    lacking = left_out(frozenset(Ability) - {Ability.CLOCK})

    assert lacking == {"skew_clock": "this cluster lacks clocks that can be set"}
