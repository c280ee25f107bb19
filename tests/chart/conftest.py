"""Renders the chart by `helm`, which `make chart-test` builds."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "tidelog"
HELM_VARIABLE = "TIDELOG_HELM"
RENDER_TIMEOUT_SECONDS = 60
# A helm that `go install` builds assumes Kubernetes 1.20 without an API.
KUBE_VERSION = ("--kube-version", "1.37.0")


class Helm:
    def __init__(self, program: str) -> None:
        self._program = program

    def run(
        self, *arguments: str, values: dict[str, Any] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, *arguments, *self._version(arguments), "--values", "-"],
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            timeout=RENDER_TIMEOUT_SECONDS,
            check=False,
        )

    @staticmethod
    def _version(arguments: Sequence[str]) -> Sequence[str]:
        return () if KUBE_VERSION[0] in arguments else KUBE_VERSION

    def template(
        self, values: dict[str, Any], *options: str, chart: Path = CHART, name: str = "tidelog"
    ) -> list[dict[str, Any]]:
        done = self.run("template", name, str(chart), *options, values=values)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    def rejection(self, values: dict[str, Any], options: Sequence[str] = ()) -> str:
        done = self.run("template", "tidelog", str(CHART), *options, values=values)
        assert done.returncode != 0, done.stdout
        return done.stderr


@pytest.fixture(scope="session")
def helm() -> Helm:
    program = os.environ.get(HELM_VARIABLE)
    assert program, f"{HELM_VARIABLE} names no helm: run these tests by `make chart-test`"
    return Helm(program)
