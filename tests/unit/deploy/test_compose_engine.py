"""The suites that need containers are skipped only on a machine that can have no engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from compose.engine import CANNOT_BE_HAD, ROOT, STANDIN_VARIABLE

NO_ENGINE = "exit 1"
# An engine without any image and without access to a registry.
NO_IMAGES = 'case "$1" in image|pull) exit 1;; esac'
SCRIPT = "#!/bin/sh\n"

Program = Callable[[str, str], Path]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Writes an executable of this name with this shell body."""

    def write(name: str, script: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{SCRIPT}{script}\n")
        path.chmod(0o755)
        return path

    return write


def prepared(docker: Path, standins: Path | None = None) -> subprocess.CompletedProcess[str]:
    named = {} if standins is None else {STANDIN_VARIABLE: str(standins)}
    return subprocess.run(
        [sys.executable, "-m", "compose.engine"],
        env={"PATH": f"{docker.parent}:/usr/bin:/bin", "PYTHONPATH": str(ROOT / "tests"), **named},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("docker", [NO_ENGINE, NO_IMAGES])
def test_a_missing_engine_has_its_own_exit_status(program: Program, docker: str) -> None:
    ended = prepared(program("docker", docker))
    assert ended.returncode == CANNOT_BE_HAD
    assert STANDIN_VARIABLE in ended.stderr or "no registry gives" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("docker", [NO_ENGINE, NO_IMAGES])
@pytest.mark.parametrize("standins", ["exit 3", "exit 0"], ids=["fails", "brings nothing"])
def test_a_broken_engine_is_a_failure(program: Program, docker: str, standins: str) -> None:
    ended = prepared(program("docker", docker), program("standins", standins))
    assert ended.returncode == 1, ended.stderr


def test_an_existing_engine_needs_no_stand_ins(program: Program) -> None:
    ended = prepared(program("docker", "exit 0"), program("standins", "exit 1"))
    assert ended.returncode == 0, ended.stderr


COMPOSED, LOCAL = "compose-test", "faults LOCAL=1"


class Ci(NamedTuple):
    """An end of `.ci/run`, and what it has made."""

    passed: bool
    made: list[str]
    message: str

    def has_made(self, what: str) -> bool:
        return any(line.startswith(what) for line in self.made)


def ran_ci(directory: Path, program: Program, engine: int, after_s: int = 0) -> Ci:
    """`engine`: the exit status of `compose.engine`. `after_s`: how long all before took."""
    (directory / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", directory / ".ci")
    made = directory / "made"
    made.touch()
    program("make", f'echo "$@" >> {made}')
    for name in ("promtool", "chromium", "java"):
        program(name, "exit 1")
    python = program("python", f"exit {engine}")
    (directory / ".venv").mkdir()
    (directory / ".venv/bin").symlink_to(python.parent)
    ended = subprocess.run(
        [directory / ".ci/run"],
        # The variable of the shell in which the script measures its own time.
        env={"PATH": f"{python.parent}:{os.environ['PATH']}", "SECONDS": str(after_s)},
        capture_output=True,
        text=True,
        check=False,
    )
    return Ci(ended.returncode == 0, made.read_text().splitlines(), ended.stderr)


@pytest.mark.parametrize(
    ("status", "passes", "made"),
    [
        (0, True, COMPOSED),
        (CANNOT_BE_HAD, True, LOCAL),
        (1, False, None),
        (124, False, None),
    ],
)
def test_ci_skips_the_suites_only_where_there_can_be_no_engine(
    tmp_path: Path, program: Program, status: int, passes: bool, made: str | None
) -> None:
    ended = ran_ci(tmp_path, program, status)
    assert ended.passed is passes, ended.message
    assert ended.has_made(COMPOSED) is (made == COMPOSED)
    if made == LOCAL:
        assert ended.has_made(LOCAL)
    assert ("compose-test: not run" in ended.message) is (status == CANNOT_BE_HAD)


@pytest.mark.parametrize(
    ("after_s", "passes", "made"),
    [(3_000, True, COMPOSED), (3_700, True, LOCAL), (4_200, False, None)],
)
def test_ci_on_a_slow_machine_proves_local_faults_or_fails(
    tmp_path: Path, program: Program, after_s: int, passes: bool, made: str | None
) -> None:
    ended = ran_ci(tmp_path, program, 0, after_s)
    assert ended.passed is passes, ended.message
    assert ended.has_made(COMPOSED) is (made == COMPOSED)
    assert ended.has_made("faults") is passes
    assert ended.has_made(LOCAL) or made != LOCAL
