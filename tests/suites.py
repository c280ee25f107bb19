"""`make test`: every suite in its own pytest run, within its own budget of time.

A suite that needs a system package which is not there is left out by name; with CI=true
that is a failure. Ends with pytest's own closing line of each suite.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PROCESSES_BY_FILE = 2

_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*m")
_CLOSING_LINE = re.compile(
    r"\b(\d+ (passed|failed|error|errors|skipped|deselected)|no tests ran)\b.* in \d"
)


@dataclass(frozen=True, slots=True)
class Suite:
    """`needs`: programs of Debian packages that `make system-deps` installs. `on_all_cores`: its
    tests share nothing, so that several processes may run them. `by_file`: its files share nothing,
    and mostly wait; two processes run them, each with a cluster of its own."""

    name: str
    budget_seconds: int
    needs: tuple[str, ...] = ()
    on_all_cores: bool = False
    by_file: bool = False

    @property
    def missing(self) -> list[str]:
        return [program for program in self.needs if shutil.which(program) is None]


@dataclass(frozen=True, slots=True)
class Outcome:
    suite: Suite
    passed: bool
    seconds: float
    closing_line: str


SUITES = (
    Suite("unit", budget_seconds=360, on_all_cores=True),
    Suite("model", budget_seconds=120, on_all_cores=True),
    Suite("contract", budget_seconds=60),
    Suite("simulation", budget_seconds=600, on_all_cores=True),
    Suite("integration", budget_seconds=720, by_file=True),
    Suite("spark", budget_seconds=400, needs=("java", "prometheus"), by_file=True),
    Suite("pipeline", budget_seconds=560, needs=("java",), by_file=True),
    Suite("api_fuzz", budget_seconds=120),
    Suite("console", budget_seconds=420, needs=("chromium",), by_file=True),
    Suite("monitoring", budget_seconds=170, needs=("prometheus", "promtool"), by_file=True),
)


def main() -> int:
    in_ci = os.environ.get("CI") == "true"
    present = [suite for suite in SUITES if (TESTS / suite.name).is_dir()]
    left_out = [suite for suite in present if suite.missing]
    outcomes = [run(suite) for suite in present if not suite.missing]
    for suite in left_out:
        say(
            f"Left out: {suite.name}, which needs {', '.join(suite.missing)}; "
            "`make system-deps` installs it."
        )
    for outcome in outcomes:
        say(
            f"{outcome.suite.name}: {'passed' if outcome.passed else 'FAILED'} in "
            f"{outcome.seconds:.0f} s of {outcome.suite.budget_seconds} s"
        )
    for outcome in outcomes:
        say(outcome.closing_line)
    failed = not outcomes or not all(outcome.passed for outcome in outcomes)
    return 1 if failed or (in_ci and left_out) else 0


def run(suite: Suite) -> Outcome:
    """Shows what pytest writes while it runs. Over its budget, a suite is ended."""
    say(f"{suite.name}: at most {suite.budget_seconds} s")
    colour = "yes" if sys.stdout.isatty() else "no"
    command = [sys.executable, "-m", "pytest", f"--color={colour}", str(TESTS / suite.name)]
    if suite.on_all_cores:
        command += ["--numprocesses", "auto"]
    if suite.by_file:
        command += ["--numprocesses", str(PROCESSES_BY_FILE), "--dist", "loadfile"]
    started = time.monotonic()
    # A session of its own, so that at the end of the budget its whole group is ended.
    process = subprocess.Popen(
        command,
        cwd=TESTS.parent,
        env=environment_of_tests(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    over_budget = threading.Event()

    def end() -> None:
        over_budget.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(suite.budget_seconds, end)
    timer.start()
    try:
        lines = echo(process)
        status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    finally:
        timer.cancel()
    seconds = time.monotonic() - started
    if over_budget.is_set():
        say(f"{suite.name}: ended, because it took longer than {suite.budget_seconds} s")
    return Outcome(suite, status == 0, seconds, closing_line(suite, lines))


def environment_of_tests() -> dict[str, str]:
    """PYTHONPATH: on a clean clone there is none, and what finds its modules by it alone has to
    fail here, too. PYTHONDONTWRITEBYTECODE: hundreds of processes would each compile every module
    of the project, which is a third of what the start of a service costs."""
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def echo(process: subprocess.Popen[str]) -> list[str]:
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        say(line.rstrip("\n"))
        lines.append(line)
    return lines


def closing_line(suite: Suite, lines: Sequence[str]) -> str:
    plain = (_TERMINAL_CODES.sub("", line).strip() for line in reversed(lines))
    return next(
        (line for line in plain if _CLOSING_LINE.search(line)),
        f"{suite.name}: pytest did not come to its end",
    )


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
