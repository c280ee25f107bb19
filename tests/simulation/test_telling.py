"""A failure is told so that it can be understood and run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulation.__main__ import TRACE_LINES, main
from simulation.faults import Fault, parse_fault
from simulation.plans import draw_plan
from simulation.scenario import run_seed
from simulation.test_planted_bugs import recover_without_consent
from simulation.world import Settings

NAME = "recovered_without_consent"
MAX_SEEDS = 40


def faults_told(lines: list[str]) -> list[Fault]:
    found: list[Fault] = []
    for line in lines:
        try:
            found.append(parse_fault(line))
        except ValueError:
            continue
    return found


@pytest.mark.timeout(300)
def test_a_failure_is_told_with_the_fewest_faults_and_the_events_around_it(
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
    faults = faults_told(told[begin:end])
    assert 0 < len(faults) < len(draw_plan(seed, Settings()))
    assert run_seed(seed, faults).violation == NAME
    events = told[begin + 1 + len(faults) : end]
    assert len(events) == TRACE_LINES
    assert any(" fault_" in line for line in events)
    report = json.loads(out.read_text())
    assert (report["seeds"], report["violations"], report["exceptions"]) == (1, 1, 0)
    assert report["failing_seeds"] == [{"seed": seed, "name": NAME}]
    assert report["seconds"] > 0
