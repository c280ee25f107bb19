"""The files that a run leaves behind."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from faults import __main__ as faults


@pytest.mark.parametrize("status", [0, 1])
def test_the_history_of_a_failure_is_kept_and_replaces_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    earlier = tmp_path / "faults-failed" / "run-9"
    earlier.mkdir(parents=True)

    async def prove(_: object, __: int, directory: Path) -> int:
        (directory / "run-1").mkdir()
        (directory / "run-1" / "history").write_text("what was done")
        return status

    monkeypatch.setattr(faults, "_faults", prove)
    assert faults.main(["--out", str(tmp_path / "faults.json")]) == status
    history = tmp_path / "faults-failed" / "run-1" / "history"
    assert (history.exists(), earlier.exists()) == (status == 1, False)


@pytest.mark.parametrize(
    ("arguments", "out"),
    [
        ([], "out/faults.json"),
        (["--seed", "7", "--runs", "4"], "out/faults.json"),
        (["--runs", "1"], "out/faults.partial.json"),
        (["--minutes", "2"], "out/faults.partial.json"),
        (["--only", "kill_leader"], "out/faults.partial.json"),
        (["--local"], "out/faults.partial.json"),
        (["--no-bounds"], "out/faults.partial.json"),
        (["--local", "--out", "elsewhere.json"], "elsewhere.json"),
    ],
)
def test_a_weaker_proof_does_not_replace_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], out: str
) -> None:
    outs: list[Path] = []

    async def prove(options: argparse.Namespace, _: int, __: Path) -> int:
        outs.append(options.out)
        return 0

    monkeypatch.setattr(faults, "_faults", prove)
    monkeypatch.chdir(tmp_path)
    faults.main(arguments)
    assert outs == [Path(out)]
