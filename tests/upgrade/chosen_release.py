"""Starts a service from the source tree that is chosen for it at that moment.

The arguments are the directory of choices, the module of the service, and its own arguments. The
last one is its configuration file: `broker-2.toml` belongs to the choice `broker-2`. This module
imports nothing of Tidelog, because it runs before the source tree is known."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def program(choices: Path, module: str) -> list[str]:
    """The command of a service, whose configuration file follows."""
    return [sys.executable, __file__, str(choices), module]


def choose(choices: Path, part: str, python_path: str) -> None:
    """Its next start uses the packages in `python_path`."""
    choices.mkdir(parents=True, exist_ok=True)
    (choices / part).write_text(python_path)


def main() -> None:
    choices, module, *arguments = sys.argv[1:]
    python_path = (Path(choices) / Path(arguments[-1]).stem).read_text()
    command = [sys.executable, "-m", module, *arguments]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": python_path})


if __name__ == "__main__":
    main()
