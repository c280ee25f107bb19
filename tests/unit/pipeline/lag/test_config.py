"""Configuration of the job `lag`."""

from __future__ import annotations

import datetime

import pytest

from tidelog_pipeline.job_command import load_action
from tidelog_pipeline.lag.lag_config import ACTIONS, RollupConfig, SampleConfig


def test_samples_are_taken_every_five_seconds_until_the_job_is_stopped() -> None:
    config = load_action("lag", ACTIONS, ["sample", "--create", "--drivers", "a:1,b:2"])
    assert isinstance(config, SampleConfig)
    assert (config.every_ms, config.rounds, config.create) == (5_000, None, True)
    assert config.drivers == ["a:1", "b:2"]


def test_a_rollup_covers_days() -> None:
    flags = ["--output", "/data/lag", "--since", "2026-11-20", "--until", "2026-11-22"]
    config = load_action("lag", ACTIONS, ["rollup", *flags])
    assert isinstance(config, RollupConfig)
    assert (config.since, config.until) == (
        datetime.date(2026, 11, 20),
        datetime.date(2026, 11, 22),
    )


@pytest.mark.rule("jobs-configured-like-services")
@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["rollup"], "output is not set"),
        (["rollup", "--output", "s3://a/b"], "must be a directory"),
        (["rollup", "--output", "o", "--since", "today"], "from the flag --since"),
        (
            ["rollup", "--output", "o", "--since", "2026-11-22", "--until", "2026-11-20"],
            "which is earlier",
        ),
        (["sample", "--drivers", "a"], "give host:port"),
        (["smaple"], "there is no action 'smaple'"),
    ],
)
def test_invalid_settings_are_reported(
    argv: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        load_action("lag", ACTIONS, argv)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err
