"""A planted bug counts as found if the unmodified code does not show the anomaly."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest

from faults import bug_hunt
from faults.bug_hunt import MAX_RUNS, PLANTED, Shown, control, hunt, judge
from faults.catalogue import KINDS
from faults.plan import STORIES
from faults.result import COUNTED
from mutants.planted_bugs import all_mutants
from mutants.tree import ROOT

TREE = Path("/with-a-bug")


class Strikes:
    """`shows`: anomalies by step and seed; other runs show none."""

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


def test_the_control_runs_the_unmodified_code_with_each_step_and_as_many_seeds() -> None:
    strikes, brief = Strikes({}), Strikes({})
    steps = ["kill_leader", "unreported_shrink"]

    runs = control([*steps, "kill_leader"], strikes, brief)

    assert [run.wrong for run in runs] == [""] * MAX_RUNS * len(steps)
    assert strikes.were == [(ROOT, step, 1) for step in steps]
    assert brief.were == [(ROOT, s, seed) for seed in range(2, MAX_RUNS + 1) for s in steps]


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        (Shown("2 lost"), "kill_leader, seed 3, shows 2 lost"),
        (Shown(no_verdict="no etcd"), "no verdict of kill_leader, seed 3: no etcd"),
    ],
)
def test_a_failed_control_is_reported(shown: Shown, wrong: str) -> None:
    brief = Strikes({("kill_leader", 3): shown})
    runs = control(["kill_leader", "unreported_shrink"], Strikes({}), brief)

    assert runs[-1].wrong == wrong
    assert len(brief.were) == 3


def test_a_bug_is_run_until_an_anomaly_is_found() -> None:
    strikes = Strikes({("kill_leader", 2): Shown("1 lost")})

    runs = hunt(TREE, "kill_leader", strikes, lambda: True)

    assert [(run.seed, run.shown.anomalies) for run in runs] == [(1, ""), (2, "1 lost")]


def test_a_bug_without_an_anomaly_survives() -> None:
    strikes = Strikes({("kill_leader", 1): Shown(no_verdict="no etcd")})

    runs = hunt(TREE, "kill_leader", strikes, lambda: True)

    assert len(runs) == MAX_RUNS
    assert not any(run.shown.anomalies for run in runs)


def test_a_run_that_would_exceed_the_time_is_not_started() -> None:
    has_time = iter([True, False])

    assert len(hunt(TREE, "kill_leader", Strikes({}), lambda: next(has_time))) == 1


@pytest.mark.parametrize(("shows", "status"), [("1 lost", 0), ("", 1)])
def test_the_results_of_each_bug_and_of_the_control_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shows: str, status: int
) -> None:
    def strike(tree: Path, _: str, seed: int, **__: object) -> Shown:
        return Shown(shows if tree == TREE and seed == 2 else "")

    monkeypatch.setattr(bug_hunt, "_strike", strike)
    monkeypatch.setattr(bug_hunt, "planted_tree", lambda _: nullcontext(TREE))
    monkeypatch.chdir(tmp_path)

    assert bug_hunt.main(["--only", "ack-from-log-end"]) == status
    document = json.loads((tmp_path / "out/faults-planted.partial.json").read_text())
    step = PLANTED["ack-from-log-end"]
    assert [run["seed"] for run in document["control"]] == [1, 2, 3]
    assert document["bugs"]["ack-from-log-end"][1] == {
        "step": step,
        "seed": 2,
        "anomalies": shows,
        "no_verdict": "",
    }


@pytest.mark.parametrize(
    ("found", "output", "shown"),
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
def test_a_run_reports_anomalies_or_their_absence_under_faults(
    found: dict[str, object], output: str, shown: Shown
) -> None:
    assert judge(found, output) == shown
