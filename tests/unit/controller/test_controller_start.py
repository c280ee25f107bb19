"""Failures at the start of the process, and its configuration."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from tidelog_controller.controller_config import ControllerConfig
from tidelog_runtime.config import EXIT_INVALID_CONFIG, load

START_TIMEOUT_SECONDS = 30


def test_a_port_in_use_is_a_clear_error_and_exit_status_1() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "tidelog_controller",
                "--controller-id=1",
                f"--listen={address}",
            ],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_SECONDS,
            env=os.environ,
            check=False,
        )
    assert run.returncode == 1, run.stderr
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["cannot_listen"]
    assert address in lines[0]["problem"]
    assert "--listen" in lines[0]["remedy"]


def test_the_usual_settings_need_only_an_id() -> None:
    config = load(ControllerConfig, ["--controller-id", "3"])
    assert (config.controller_id, config.address) == (3, "127.0.0.1:7400")
    assert config.command_timeout_ms == 10_000


def test_listening_on_all_interfaces_needs_an_advertised_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        load(ControllerConfig, ["--controller-id=1", "--listen=0.0.0.0:7400"])
    assert exit_info.value.code == EXIT_INVALID_CONFIG
    assert "advertised_address" in capsys.readouterr().err
