"""What a user waits for, and gets, with each documented `pip install`
and with `make up` (`PYTHONPATH=tests python -m bench.packages`): the size of a new environment, the
duration of its installation, and of the first command in it.

pip installs wheels of this tree and, from the index, the versions that the locks have. What pip has
in its cache is not downloaded again."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from bench.published import MAKE_UP_SECONDS, MAKE_UP_SIZE
from bench.report import Measured, at_most, finish, plain_document, write_json
from documented import ROOT
from integration.distributions import Wheel, built_wheels, install_by_pip, locked
from integration.test_distributions import CASES, Case

# Bounds of what `make up` installs.
MAX_MB = 150
MAX_SECONDS = 60


def main() -> int:
    console = Console()
    results: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="tidelog-packages-") as name:
        directory = Path(name)
        wheels = built_wheels(directory / "wheels")
        for number, case in enumerate(CASES):
            console.print(f"{case.requirement} …", highlight=False, markup=False)
            results += _measure(case, wheels, directory / str(number))
        console.print("make up …", highlight=False)
        results += _measure_make_up(directory / "make-up")
    path = write_json(ROOT / "out" / "packages.json", plain_document(results))
    return finish(results, console, "New environments", path)


def _measure(case: Case, wheels: dict[str, Wheel], work: Path) -> Iterator[Measured]:
    began = time.monotonic()
    environment = install_by_pip(work, case.requirement, wheels, locked())
    seconds = time.monotonic() - began
    megabytes = _bytes_on_disk(environment.directory) / 1e6
    began = time.monotonic()
    done = environment.run(*case.command, work=work)
    first = time.monotonic() - began
    if done.returncode or case.shows not in done.stdout:
        raise RuntimeError(f"{case.requirement}: {done.stdout}{done.stderr}")
    # Brackets would be markup of the table.
    of = case.requirement.replace("[", " ").replace("]", "") + ":"
    yield Measured(f"{of} size", megabytes, "MB")
    yield Measured(f"{of} installation", seconds, "s")
    yield Measured(f"{of} first command", first, "s")


def _measure_make_up(environment: Path) -> Iterator[Measured]:
    began = time.monotonic()
    stamp = environment / ".installed-local"
    subprocess.run(["make", f"VENV={environment}", str(stamp)], check=True, cwd=ROOT)
    seconds = time.monotonic() - began
    yield at_most(MAKE_UP_SIZE, _bytes_on_disk(environment) / 1e6, MAX_MB, "MB")
    yield at_most(MAKE_UP_SECONDS, seconds, MAX_SECONDS, "s")


def _bytes_on_disk(directory: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in (directory, *directory.rglob("*")))


if __name__ == "__main__":
    sys.exit(main())
