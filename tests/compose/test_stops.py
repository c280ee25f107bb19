"""SIGTERM, as `docker-compose stop` and Kubernetes send it."""

from __future__ import annotations

import time

import pytest
import yaml

from compose.engine import ROOT
from compose.stack import OWN_SERVICES, Stack

WHOLE_TIMEOUT_S = 120.0


def grace_s(service: str) -> int:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return int(services[service]["stop_grace_period"].removesuffix("s"))


@pytest.mark.parametrize("service", OWN_SERVICES)
def test_a_service_stops_within_its_grace_and_in_order(stack: Stack, service: str) -> None:
    """It is not killed at the end of the grace period, which would be status 137."""
    started = time.monotonic()
    stack.compose("stop", service)
    took_s = time.monotonic() - started
    state = stack.inspect(service)["State"]
    stack.start(service)
    stack.wait_healthy([service], WHOLE_TIMEOUT_S)
    assert state["ExitCode"] == 0, f"ended with {state['ExitCode']} after {took_s:.1f} s"
    assert took_s < grace_s(service)
