"""SIGTERM, as `docker stop` and Kubernetes send it."""

from __future__ import annotations

import time

import pytest

from compose.stack import OWN_SERVICES, Stack, docker

WHOLE_TIMEOUT_S = 120.0


@pytest.mark.parametrize("service", OWN_SERVICES)
def test_a_service_stops_within_its_grace_and_in_order(stack: Stack, service: str) -> None:
    container = stack.container(service)
    grace_s = int(stack.inspect(service)["Config"].get("StopTimeout") or 10)
    started = time.monotonic()
    docker("stop", container)
    took_s = time.monotonic() - started
    state = stack.inspect(service)["State"]
    stack.start(service)
    stack.wait_healthy([service], WHOLE_TIMEOUT_S)
    assert state["ExitCode"] == 0, f"ended with {state['ExitCode']} after {took_s:.1f} s"
    assert took_s < grace_s
