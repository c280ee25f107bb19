"""The output on a failure explains it and allows to run it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import simulation.__main__
from simulation.__main__ import (
    THIN,
    TRACE_LINES,
    main,
    require_enough,
)
from simulation.faults import Fault, parse_fault
from simulation.plans import draw_plan, story_of
from simulation.report import ranges, summary
from simulation.scenario import (
    EXCEPTION,
    MIN_ACKNOWLEDGED,
    MIN_FAULTS,
    MIN_WORK_MS,
    Result,
    run_seed,
)
from simulation.seeds import parse_seeds
from simulation.stored_plans import read_plan
from simulation.test_planted_bugs import recover_without_consent
from simulation.world import Settings

NAME = "recovered_without_consent"
MAX_SEEDS = 40


def printed_faults(lines: list[str]) -> list[Fault]:
    found: list[Fault] = []
    for line in lines:
        try:
            found.append(parse_fault(line))
        except ValueError:
            continue
    return found


@pytest.mark.timeout(300)
def test_a_failure_is_printed_with_the_fewest_faults_and_the_events_around_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recover_without_consent(monkeypatch)
    seed = next(n for n in range(1, MAX_SEEDS) if run_seed(n).violation == NAME)
    out = tmp_path / "sim.json"
    options = ["--seeds", "1", "--first", str(seed), "--jobs", "1", "--out", str(out)]
    assert main(options) == 1
    told = capsys.readouterr().out.splitlines()
    begin = max(n for n, line in enumerate(told) if line.startswith(f"seed {seed}: {NAME}"))
    end = told.index(f"again: make sim SEED={seed}")
    faults = printed_faults(told[begin:end])
    assert 0 < len(faults) < len(draw_plan(seed, Settings()))
    assert run_seed(seed, faults).violation == NAME
    events = told[begin + 1 + len(faults) : end]
    assert TRACE_LINES <= len(events) <= TRACE_LINES + 2 * len(faults)
    assert any(" fault_" in line for line in events)
    report = json.loads(out.read_text())
    assert (report["seeds"], report["violations"], report["exceptions"]) == (1, 1, 0)
    assert report["failing_seeds"] == [{"seed": seed, "name": NAME}]
    assert report["seconds"] > 0


FAULT = Fault(1, "etcd_away", (), 1)


def result(
    acknowledged: int = MIN_ACKNOWLEDGED,
    virtual_ms: int = MIN_WORK_MS,
    faults: int = MIN_FAULTS,
    violation: str | None = None,
) -> Result:
    return Result(
        7,
        # One more had no effect.
        [FAULT] * (faults + 1),
        acknowledged=acknowledged,
        virtual_ms=virtual_ms,
        violation=violation,
        faults={FAULT.kind: faults},
    )


@pytest.mark.parametrize(
    "lacking",
    [
        {"acknowledged": MIN_ACKNOWLEDGED - 1},
        {"virtual_ms": MIN_WORK_MS - 1},
        {"faults": MIN_FAULTS - 1},
    ],
)
def test_a_seed_that_shows_too_little_has_failed(lacking: dict[str, int]) -> None:
    thin = result(**lacking)  # type: ignore[arg-type]
    require_enough(thin)
    assert thin.violation == THIN


def test_a_seed_that_shows_enough_has_not() -> None:
    enough = result()
    require_enough(enough)
    assert enough.violation is None


def test_what_a_thin_seed_violates_keeps_its_name() -> None:
    failed = result(acknowledged=0, violation=NAME)
    require_enough(failed)
    assert failed.violation == NAME


def test_every_seed_that_failed_counts_whatever_ended_it() -> None:
    report = summary([result(), result(violation=NAME), result(violation=EXCEPTION)], seconds=1)
    assert (report["violations"], report["exceptions"]) == (2, 1)


@pytest.mark.parametrize(("seeds", "written"), [(1, "sim.partial.json"), (2, "sim.json")])
def test_one_seed_does_not_take_the_place_of_what_many_have_proven(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seeds: int, written: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simulation.__main__, "run_all", lambda ran, _: map(run, ran))
    assert main(["--seeds", str(seeds)]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == [written]


def test_a_run_adds_its_seeds_and_commit_to_the_report_of_earlier_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simulation.__main__, "PORTION_SEEDS", 2)
    monkeypatch.setattr(simulation.__main__, "run_all", lambda ran, _: map(run, ran))
    for commit, options in (("a", ["--seeds", "1-3"]), ("b", ["--seeds", "1", "--first", "9"])):
        monkeypatch.setattr(simulation.__main__, "checked_out_commit", lambda commit=commit: commit)
        assert main(["--append", *options]) == 0
    monkeypatch.setattr(simulation.__main__, "run_all", lambda *_: iter([result(violation=NAME)]))
    assert main(["--append", "--seeds", "7,"]) == 1
    report = json.loads((tmp_path / "out" / "sim.json").read_text())
    assert [(r["commit"], r["seeds"], r["failing_seeds"]) for r in report["runs"]] == [
        ("a", "1-2", []),
        ("a", "3,", []),
        ("b", "9,", []),
        ("b", "7,", [{"seed": 7, "name": NAME}]),
    ]
    assert (report["seeds"], report["violations"]) == (5, 1)
    assert report["failing_seeds"] == [{"seed": 7, "name": NAME}]
    assert report["faults"][FAULT.kind] == 5 * MIN_FAULTS
    assert report["acknowledged"] == 5 * MIN_ACKNOWLEDGED


@pytest.mark.parametrize("text", ["3,", "3-4", "3,17,40-60"])
def test_the_seeds_of_a_report_can_be_run_again(text: str) -> None:
    assert ranges(parse_seeds(text).listed) == text


def run(seed: int) -> Result:
    found = result()
    found.seed = seed
    return found


CULPRIT = Fault(2, "etcd_away", (), 1)


def fails_by_the_culprit(seed: int, plan: Sequence[Fault] | None = None, **_: object) -> Result:
    """Replaces `run_seed`."""
    faults = [FAULT, CULPRIT, FAULT] if plan is None else list(plan)
    violation = NAME if CULPRIT in faults else None
    return Result(seed, faults, violation=violation, message=f"{NAME}: it does not hold")


def test_one_seed_is_printed_with_all_its_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulation.__main__, "run_seed", fails_by_the_culprit)
    assert main(["--seed", "7"]) == 1
    assert printed_faults(capsys.readouterr().out.splitlines()) == [FAULT, CULPRIT, FAULT]


@pytest.mark.parametrize("given", [False, True])
def test_one_seed_is_shrunk_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    given: bool,
) -> None:
    monkeypatch.setattr(simulation.__main__, "run_seed", fails_by_the_culprit)
    plan = tmp_path / "plan"
    plan.write_text(f"{FAULT}\n{CULPRIT}\n")
    options = ["--plan", str(plan)] if given else []
    assert main(["--seed", "7", "--shrink", *options]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[1] == f"seed 7: {NAME}: it does not hold"
    assert printed_faults(told) == [CULPRIT]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--seeds", "3,17,40-42"], [3, 17, 40, 41, 42]),
        (["--seeds", "2", "--first", "9"], [9, 10]),
        (["--seeds", "5,"], [5]),
    ],
)
def test_seeds_are_named_by_their_number_or_as_a_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], expected: list[int]
) -> None:
    assert seeds_run(monkeypatch, tmp_path, options) == expected


def test_seeds_are_chosen_by_a_kind_of_fault_in_their_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds = ["--with-fault", "empty_disk", "--with-fault", "reboot_all"]
    ran = seeds_run(monkeypatch, tmp_path, ["--seeds", "6", *kinds])
    having = [
        seed
        for seed in range(1, ran[-1] + 1)
        if {f.kind for f in draw_plan(seed, Settings())} & {"empty_disk", "reboot_all"}
    ]
    assert ran == having
    assert len(ran) == 6


def test_seeds_are_chosen_by_the_story_in_their_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    story = "copy_beside_the_original"
    ran = seeds_run(monkeypatch, tmp_path, ["--seeds", "2", "--with-story", story])
    having = [seed for seed in range(1, ran[-1] + 1) if story_of(seed, Settings()) == story]
    assert ran == having
    kinds = [{fault.kind for fault in draw_plan(seed, Settings())} for seed in ran]
    assert all({"copied_directory", "crash_broker"} <= kind for kind in kinds)


def seeds_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: Sequence[str]) -> list[int]:
    ran: list[int] = []

    def run_all(seeds: Sequence[int], _: int) -> list[Result]:
        ran.extend(seeds)
        return [run(seed) for seed in seeds]

    monkeypatch.setattr(simulation.__main__, "run_all", run_all)
    main([*options, "--out", str(tmp_path / "sim.json")])
    return ran


@pytest.mark.parametrize("text", ["0", "", "a", "5-3", "3,,x"])
def test_seeds_that_cannot_be_read_are_rejected_with_the_form(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(SystemExit):
        main(["--seeds", text])
    assert "a list, as in 3,17,40-60" in capsys.readouterr().err


def test_json_has_the_message_of_the_first_violation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failed = result(violation=NAME)
    failed.message = f"{NAME}: it does not hold"
    monkeypatch.setattr(simulation.__main__, "run_all", lambda *_: iter([result(), failed]))
    assert main(["--json", "--stop-at-first", "--out", str(tmp_path / "sim.json")]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told == {"name": NAME, "message": failed.message, "seed": 7, "seeds": 2}


def test_a_stored_plan_names_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(simulation.__main__, "run_seed", fails_by_the_culprit)
    path = tmp_path / "culprit.txt"
    path.write_text(f"# Seed: 7\n# It fails by the culprit.\n{FAULT}\n{CULPRIT}\n")
    assert main(["--plan", str(path)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert printed_faults(told) == [FAULT, CULPRIT]
    assert told[-1].startswith("seed 7: ")
    assert read_plan(path) == ("culprit", 7, "It fails by the culprit.", [FAULT, CULPRIT])


def test_json_has_the_verdict_on_a_stored_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(simulation.__main__, "run_seed", fails_by_the_culprit)
    path = tmp_path / "culprit.txt"
    found = []
    for faults in ([FAULT], [FAULT, CULPRIT]):
        path.write_text("# Seed: 7\n" + "".join(f"{fault}\n" for fault in faults))
        main(["--json", "--plan", str(path)])
        found.append(json.loads(capsys.readouterr().out))
    message = f"{NAME}: it does not hold"
    assert found == [
        {"name": None, "seeds": 1},
        {"name": NAME, "message": message, "seed": 7, "seeds": 1},
    ]


@pytest.mark.parametrize("options", [["--shrink"], ["--plan", "/dev/null"]])
def test_what_is_for_one_seed_names_it(
    capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert "name it by --seed" in capsys.readouterr().err
