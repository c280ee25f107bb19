"""A separate wall clock for each broker of one machine. Imports little, because every broker starts
here."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from faults.compose_override import clock_environment

# Where Linux distributions install it, by the machine's architecture.
_LIBRARY_PATTERN = "*/faketime/libfaketime.so.1"
CLOCK_FILE = "offset"


def find_faketime() -> Path | None:
    return next(Path("/usr/lib").glob(_LIBRARY_PATTERN), None)


def clock_program(clocks: Path, library: Path) -> list[str]:
    """The command of a broker whose wall clock is set by a file below `clocks`; without such a file
    it uses the clock of the machine."""
    return [sys.executable, "-m", "faults.own_clocks", str(clocks), str(library)]


def broker_environment(clocks: Path, library: Path, config: Path) -> Mapping[str, str]:
    clock = clocks / config.stem / CLOCK_FILE
    if not clock.exists():
        return os.environ
    return {**os.environ, **clock_environment(str(library), str(clock))}


def main() -> None:
    """Replaces itself by the broker whose configuration file is the last argument."""
    clocks, library, *arguments = sys.argv[1:]
    environment = broker_environment(Path(clocks), Path(library), Path(arguments[-1]))
    command = [sys.executable, "-m", "tidelog_broker", *arguments]
    os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    main()
