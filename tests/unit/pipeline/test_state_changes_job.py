"""How the job reports invalid settings, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidelog_pipeline import __main__ as pipeline
from tidelog_pipeline.job_runner import EXIT_FAULT
from tidelog_pipeline.state_changes import state_changes_job
from tidelog_pipeline.state_changes.state_changes_config import StateChangesConfig
from tidelog_runtime.config import load


@pytest.mark.rule("jobs-configured-like-services")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "output is not set"),
        (["--output", "o", "--bootstrap", "h"], "give host:port"),
        (["--output", "o", "--logs", "l", "--since", "sea"], "from the flag --since"),
        (
            ["--output", "o", "--logs", "l", "--since", "2026-01-02", "--until", "2026-01-01"],
            "which is no later",
        ),
    ],
)
def test_an_invalid_setting_is_answered_with_valid_values(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline.main(["state-changes", *arguments])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_missing_log_files_are_reported_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_changes_job, "spark_session", None)
    arguments = ["--logs", str(tmp_path / "none"), "--output", str(tmp_path)]
    assert pipeline.main(["state-changes", *arguments]) == EXIT_FAULT
    assert "there is no file or directory" in json.loads(capsys.readouterr().err)["problem"]


def test_a_time_without_an_offset_is_in_utc() -> None:
    arguments = ["--output", "o", "--logs", "l", "--since", "1970-01-01T00:01", "--until"]
    config = load(StateChangesConfig, [*arguments, "1970-01-01T03:00:00+01:00"])
    assert config.window == (60_000, 7_200_000)
