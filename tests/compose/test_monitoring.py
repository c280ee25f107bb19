"""The profile `monitoring`, without Grafana: its image cannot be built everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from compose.stack import OWN_SERVICES, Stack, until

SCRAPED_TIMEOUT_S = 180.0


@pytest.fixture(scope="module")
def prometheus(stack: Stack) -> Iterator[httpx.Client]:
    stack.compose("up", "--detach", "prometheus")
    stack.wait_healthy(["prometheus"], SCRAPED_TIMEOUT_S)
    with httpx.Client(base_url=stack.prometheus_url, timeout=30.0) as client:
        yield client
    stack.compose("stop", "prometheus")


def ask(prometheus: httpx.Client, path: str) -> Any:
    answer = prometheus.get(f"/api/v1/{path}")
    answer.raise_for_status()
    return answer.json()["data"]


def test_every_service_is_scraped_under_its_own_name(prometheus: httpx.Client) -> None:
    def all_are_up() -> bool:
        targets = ask(prometheus, "targets?state=active")["activeTargets"]
        # The other job has Spark drivers, which only the profile `pipeline` starts.
        labelled = [(target["labels"], target["health"]) for target in targets]
        health = {labels["service"]: h for labels, h in labelled if labels["job"] == "tidelog"}
        if health != dict.fromkeys(OWN_SERVICES, "up"):
            raise LookupError(str(health))
        return True

    until(all_are_up, "every service is scraped", SCRAPED_TIMEOUT_S)


def test_the_alert_rules_are_loaded(prometheus: httpx.Client) -> None:
    groups = ask(prometheus, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
