"""promtool checks and tests the rules of deploy/prometheus."""

import subprocess
from pathlib import Path

import pytest

DEPLOYED = Path(__file__).parents[2] / "deploy/prometheus"


@pytest.mark.parametrize(
    ("what", "name"),
    [("check rules", "alerts.yml"), ("check config", "prometheus.yml")],
)
def test_promtool_accepts_the_rules(what: str, name: str) -> None:
    promtool(*what.split(), name)


def test_every_alert_fires_when_it_should_and_only_then() -> None:
    promtool("test", "rules", "alerts_test.yml")


def promtool(*arguments: str) -> None:
    run = subprocess.run(
        ["promtool", *arguments], cwd=DEPLOYED, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
