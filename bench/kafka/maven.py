"""Resolves jars by Maven."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
_TIMEOUT_S = 900


class MavenError(Exception):
    """Jars cannot be resolved; `str(error)` says what is missing, and how to fix it."""


def jars(pom: Path, directory: Path) -> list[Path]:
    """Returns the jars of a POM and their dependencies, which stay in Maven's repository.

    Writes a file into the directory. Raises `MavenError`.
    """
    program = shutil.which("mvn")
    if program is None:
        raise MavenError(
            "Maven is not installed, which downloads Kafka: install it (on Debian: apt-get install "
            "maven), and let it reach Maven Central or a mirror that its settings.xml names"
        )
    listed = directory / f"{pom.stem}.classpath"
    run = subprocess.run(
        [
            program,
            "--quiet",
            "--batch-mode",
            "--file",
            str(pom),
            _GOAL,
            f"-Dmdep.outputFile={listed}",
        ],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    if run.returncode != 0:
        errors = [line for line in run.stdout.splitlines() if "ERROR" in line][:3]
        raise MavenError(
            f"Maven could not resolve {pom}; it needs Maven Central, or a mirror that "
            "its settings.xml names, the first time:\n" + "\n".join(errors)
        )
    return [Path(part) for part in listed.read_text().strip().split(":")]


def version(artifact: str, of: Sequence[Path]) -> str:
    """Returns the version of a jar."""
    (found,) = (jar for jar in of if jar.parent.parent.name == artifact)
    return found.parent.name
