"""How the job reports invalid histories, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidelog.history.history_format import header_line
from tidelog_pipeline import __main__ as pipeline
from tidelog_pipeline.check import check_job
from tidelog_pipeline.job_runner import EXIT_FAULT


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("Spark is started before the history is looked at")

    monkeypatch.setattr(check_job, "spark_session", fail)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "there is no history"),
        (b"", "is empty; a history has at least its first line"),
        (b"2026-01-01 INFO started\n", "line 1: no JSON"),
        (header_line().replace(b"1}", b"9}"), "a history of version 9; this program reads 1"),
    ],
)
def test_an_invalid_history_is_reported_before_spark_starts(
    content: bytes | None, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history"
    if content is not None:
        path.write_bytes(content)
    assert pipeline.main(["check", "--history", str(path)]) == EXIT_FAULT
    document = json.loads(capsys.readouterr().err)
    assert problem in document["problem"]
    assert document["event"] == "job_failed"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "history is not set"),
        (["--history", "h", "--range-bytes", "3"], "range_bytes"),
        (["--history", "h", "--spark-conf", "memory"], "give name=value"),
        (["--histroy", "h"], "histroy"),
    ],
)
def test_an_invalid_setting_is_answered_with_valid_values(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline.main(["check", *arguments])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_an_unknown_job_is_answered_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline.main(["chekc"])
    assert ended.value.code == 2
    reported = capsys.readouterr().err
    assert "there is no job 'chekc'" in reported
    assert all(name in reported for name in pipeline.JOBS)
    with pytest.raises(SystemExit) as ended:
        pipeline.main(["--help"])
    assert ended.value.code == 0
    assert "state-changes" in capsys.readouterr().out
