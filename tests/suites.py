"""`make test`: every suite in its own pytest run, within its own budget of time.

A suite whose system package is missing is left out by name; with CI=true that is a failure. Ends
with pytest's own closing line of each suite."""

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
from dataclasses import dataclass, replace
from pathlib import Path

TESTS = Path(__file__).resolve().parent

_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*m")
_CLOSING_LINE = re.compile(
    r"\b(\d+ (passed|failed|error|errors|skipped|deselected)|no tests ran)\b.* in \d"
)


@dataclass(frozen=True, slots=True)
class Suite:
    """`needs`: programs of Debian packages that `make system-deps` installs.
    `on_all_cores`: its tests share nothing, so that several processes may run them.
    `by_file`: its files share nothing, and mostly wait; so many processes run them, each with a
    cluster of its own.
    `beside`: suites that the same processes run, so that none of them is idle."""

    name: str
    budget_seconds: int
    needs: tuple[str, ...] = ()
    on_all_cores: bool = False
    by_file: int = 0
    beside: tuple[Suite, ...] = ()

    @property
    def names(self) -> str:
        return ", ".join([self.name, *(suite.name for suite in self.beside)])

    @property
    def total_budget_seconds(self) -> int:
        return self.budget_seconds + sum(suite.budget_seconds for suite in self.beside)

    @property
    def missing(self) -> list[str]:
        return [program for program in self.needs if shutil.which(program) is None]


@dataclass(frozen=True, slots=True)
class Outcome:
    suite: Suite
    passed: bool
    seconds: float
    closing_line: str


# About three times what a suite takes on a machine of usual speed: some take half as long again or
# twice as long, and a suite that is slow is no hung one.
SUITES = (
    Suite("unit", budget_seconds=700, on_all_cores=True),
    Suite("model", budget_seconds=240, on_all_cores=True),
    Suite("simulation", budget_seconds=900, on_all_cores=True),
    Suite(
        "integration",
        budget_seconds=1500,
        by_file=2,
        beside=(
            Suite("contract", budget_seconds=90),
            Suite("api_fuzz", budget_seconds=60),
            Suite("monitoring", budget_seconds=120, needs=("prometheus", "promtool")),
        ),
    ),
    Suite("spark", budget_seconds=700, needs=("java", "prometheus"), by_file=2),
    Suite("pipeline", budget_seconds=900, needs=("java",), by_file=2),
    Suite("console", budget_seconds=900, needs=("chromium",), by_file=2),
)


def main() -> int:
    in_ci = os.environ.get("CI") == "true"
    present = [suite for suite in SUITES if (TESTS / suite.name).is_dir()]
    left_out = [s for suite in present for s in (suite, *suite.beside) if s.missing]
    outcomes = [run(without(suite, left_out)) for suite in present if not suite.missing]
    for suite in left_out:
        say(
            f"Left out: {suite.name}, which needs {', '.join(suite.missing)}; "
            "`make system-deps` installs it."
        )
    for outcome in outcomes:
        say(
            f"{outcome.suite.names}: {'passed' if outcome.passed else 'FAILED'} in "
            f"{outcome.seconds:.0f} s of {outcome.suite.total_budget_seconds} s"
        )
    for outcome in outcomes:
        say(outcome.closing_line)
    failed = not outcomes or not all(outcome.passed for outcome in outcomes)
    return 1 if failed or (in_ci and left_out) else 0


def without(suite: Suite, left_out: Sequence[Suite]) -> Suite:
    return replace(suite, beside=tuple(s for s in suite.beside if s not in left_out))


def run(suite: Suite) -> Outcome:
    """Shows pytest's output while it runs. A suite beyond its budget is ended."""
    say(f"{suite.names}: at most {suite.total_budget_seconds} s")
    colour = "yes" if sys.stdout.isatty() else "no"
    directories = [str(TESTS / each.name) for each in (suite, *suite.beside)]
    command = [sys.executable, "-m", "pytest", f"--color={colour}", *directories]
    if suite.on_all_cores:
        command += ["--numprocesses", "auto", "--dist", "worksteal"]
    if suite.by_file:
        # In the order of collection (`longest_first`), and not by the number of tests in a file.
        command += ["--numprocesses", str(suite.by_file), "--dist", "loadfile"]
        command += ["--no-loadscope-reorder"]
    started = time.monotonic()
    # A separate session, so that its whole group can be ended at the end of the budget.
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

    timer = threading.Timer(suite.total_budget_seconds, end)
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
        say(f"{suite.name}: ended, because it took longer than {suite.total_budget_seconds} s")
    return Outcome(suite, status == 0, seconds, closing_line(suite, lines))


def environment_of_tests() -> dict[str, str]:
    """The environment of the tests.

    PYTHONPATH is removed: a clean clone has none, so that modules which need it have to fail here,
    too.
    PYTHONDONTWRITEBYTECODE is removed: hundreds of processes would each compile every module of the
    project, a third of the cost of starting a service."""
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
