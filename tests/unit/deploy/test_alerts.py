"""Alert rules use series that exist, and each has tests. Promtool checks in tests/monitoring
when they fire."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unit.deploy import promql

DIRECTORY = Path(__file__).parents[3] / "deploy/prometheus"
RULES = re.split(r"^ +- alert: ", (DIRECTORY / "alerts.yml").read_text(), flags=re.MULTILINE)[1:]
NAMED = [pytest.param(rule, id=rule.splitlines()[0]) for rule in RULES]
TESTS = (DIRECTORY / "alerts_test.yml").read_text()


def without_comments(text: str) -> str:
    return re.sub(r"^ *#.*$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("rule", NAMED)
def test_an_alert_uses_existing_series_and_labels(rule: str) -> None:
    query = without_comments(rule).partition("expr:")[2].partition("labels:")[0]
    selectors = list(promql.selectors(query))

    assert selectors
    for name, labels in selectors:
        assert set(labels) <= promql.labels_of(name)


@pytest.mark.parametrize("rule", NAMED)
def test_an_alert_has_problem_meaning_and_command(rule: str) -> None:
    assert re.search(r"severity: (critical|warning)\}", rule)
    for annotation in ("summary", "description", "runbook"):
        assert re.search(rf"^ +{annotation}: .*\S", rule, re.MULTILINE)


@pytest.mark.parametrize("rule", NAMED)
def test_every_alert_has_promtool_tests_for_firing_and_not_firing(rule: str) -> None:
    name = rule.splitlines()[0]
    test = re.search(rf"- name: {name}\b.*?(?=\n  - name:|\Z)", TESTS, re.DOTALL)

    assert test
    assert f'alertname="{name}"' in test[0]
    assert "exp_samples: []" in test[0]
