"""A planted bug is found by what the code without it does not show."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from faults.catalogue import KINDS
from faults.plan import STORIES
from faults.planted import MAX_RUNS, PLANTED, Shown, control, hunt, judge
from faults.verdict import COUNTED
from mutants.planted import all_mutants
from mutants.tree import ROOT

TREE = Path("/with-a-bug")


class Strikes:
    """`shows`: by step and seed; others show nothing."""

    def __init__(self, shows: Mapping[tuple[str, int], Shown]) -> None:
        self._shows = shows
        self.were: list[tuple[Path, str, int]] = []

    def __call__(self, tree: Path, step: str, seed: int) -> Shown:
        self.were.append((tree, step, seed))
        return self._shows.get((step, seed), Shown())


def counts(**changed: object) -> dict[str, object]:
    faults = {"kill_leader": {"injected": 2, "with_effect": 2}}
    return {"acknowledged": 9, **dict.fromkeys(COUNTED, 0), "faults": faults, **changed}


def test_every_planted_bug_and_every_step_exists() -> None:
    assert PLANTED.keys() <= {mutant.name for mutant in all_mutants()}
    assert set(PLANTED.values()) <= {*KINDS, *(story.name for story in STORIES)}


def test_the_control_strikes_the_code_as_it_is_by_each_step_once() -> None:
    strikes = Strikes({})

    assert control(["kill_leader", "untold_shrink", "kill_leader"], strikes) == ""
    assert strikes.were == [(ROOT, "kill_leader", 1), (ROOT, "untold_shrink", 1)]


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (Shown("2 lost"), "kill_leader shows 2 lost"),
        (Shown(no_verdict="no etcd"), "no verdict of kill_leader: no etcd"),
    ],
)
def test_a_control_that_is_not_clean_is_told(shown: Shown, told: str) -> None:
    assert control(["kill_leader"], Strikes({("kill_leader", 1): shown})) == told


def test_a_bug_is_hunted_until_an_anomaly_shows() -> None:
    strikes = Strikes({("kill_leader", 2): Shown("1 lost")})

    assert hunt(TREE, "kill_leader", strikes) == "1 lost"
    assert [seed for _, _, seed in strikes.were] == [1, 2]


def test_a_bug_that_no_run_shows_survives() -> None:
    strikes = Strikes({("kill_leader", 1): Shown(no_verdict="no etcd")})

    assert hunt(TREE, "kill_leader", strikes) == ""
    assert len(strikes.were) == MAX_RUNS


@pytest.mark.parametrize(
    ("found", "said", "shown"),
    [
        (counts(), "", Shown()),
        (counts(lost=2), "", Shown("2 lost")),
        (counts(), "PROBLEM: run 1: 1 × time travel", Shown("time travel")),
        (counts(faults={}), "", Shown(no_verdict="no effect of any fault")),
        (counts(acknowledged=0), "", Shown(no_verdict="no record was acknowledged")),
        (
            counts(faults={"kill_leader": {"injected": 1, "with_effect": 0}}),
            "",
            Shown(no_verdict="no effect of kill_leader"),
        ),
    ],
)
def test_a_run_shows_anomalies_or_that_there_are_none_under_faults(
    found: dict[str, object], said: str, shown: Shown
) -> None:
    assert judge(found, said) == shown
