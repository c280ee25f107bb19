"""`tidelog check-history`: verdict, table, examples, exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidelog.cli.__main__ import app
from tidelog.cli.exit_status import ExitStatus
from tidelog.history import HistoryWriter
from unit.history.recording import Recording


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.history"


def check(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["check-history", *map(str, arguments)], catch_exceptions=False)


def write(path: Path, history: Recording) -> Path:
    with HistoryWriter(path) as writer:
        writer.write_all(history.operations)
    return path


def sound() -> Recording:
    history = Recording()
    history.sent(1, 0)
    history.nemesis("kill", "broker 1")
    history.sent(2, 1)
    return history


def test_a_correct_history_is_valid(path: Path) -> None:
    history = sound()
    history.drained([(0, 1), (1, 2)])
    result = check(write(path, history))
    assert result.exit_code == ExitStatus.DONE
    lines = result.stdout.splitlines()
    assert lines[0] == "VALID: no anomaly"
    assert "2 sends (2 ok, 0 failed, 0 unknown), 1 poll of 2 records" in lines[1]
    assert "Longest without a successful send: 0.030 s, from 0.010 s to 0.040 s" in lines
    assert any("kill broker 1" in line and "0.030 s" in line for line in lines)


def test_anomalies_are_shown_with_their_operations(path: Path) -> None:
    history = sound()
    history.drained([(0, 1)])
    result = check(write(path, history))
    assert result.exit_code == ExitStatus.FAILED
    shown = result.stdout
    assert shown.startswith("INVALID: 1 anomaly\n")
    row = next(line for line in shown.splitlines() if line.startswith("unseen "))
    assert row.split()[:4] == ["unseen", "1", "0", "sea/0:"]
    assert "  sea/0: value 2 acknowledged at offset 1: the final reads do not show it" in shown
    example = "p1 sent value 2 (line 5): ok at offset 1, leader epoch 1, broker 1"
    assert any(
        line.split()[:4] == ["line", "6", "0.040", "s"] and line.endswith(example)
        for line in shown.splitlines()
    )
    assert example not in check(path, "--examples", 0).stdout


def test_excused_loss_is_named_and_not_counted(path: Path) -> None:
    history = sound()
    history.lost(1, 1)
    history.drained([(0, 1)])
    result = check(write(path, history))
    assert result.exit_code == ExitStatus.DONE
    assert result.stdout.startswith("VALID: no anomaly (1 excused by loss marks)\n")
    assert "[excused: unclean election]" in result.stdout


def test_partitions_that_were_not_drained_are_named(path: Path) -> None:
    result = check(write(path, sound()))
    assert "no final reads are recorded: sea/0" in result.stdout


def test_the_report_as_json(path: Path) -> None:
    history = sound()
    history.drained([(0, 1)])
    result = check(write(path, history), "--json")
    assert result.exit_code == ExitStatus.FAILED
    document = json.loads(result.stdout)
    assert (document["valid"], document["anomaly_count"]) == (False, 1)
    (anomaly,) = document["anomalies"]
    assert (anomaly["anomaly"], anomaly["count"], anomaly["excused"]) == ("unseen", 1, 0)
    (operation,) = anomaly["examples"][0]["operations"]
    assert (operation["line"], operation["time_ms"]) == (6, 40)
    assert document["nemesis"][0]["event"] == "kill"
    assert document["longest_write_gap"] == {"begin_ms": 10, "end_ms": 40, "length_ms": 30}


def test_an_invalid_history_is_wrong_usage(path: Path) -> None:
    assert check(path).exit_code == ExitStatus.USAGE
    path.write_bytes(b"no history\n")
    result = check(path)
    assert result.exit_code == ExitStatus.USAGE
    assert f"{path}, line 1: no JSON" in result.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_contradictory_history_is_wrong_usage(path: Path, options: list[str]) -> None:
    history = sound()
    history.invoke(1)
    result = check(write(path, history), *options)
    assert result.exit_code == ExitStatus.USAGE
    message = json.loads(result.stdout)["error"]["message"] if options else result.stderr
    assert f"{path}, line 7: value 1 is sent a second time" in message
