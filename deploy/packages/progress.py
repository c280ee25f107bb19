"""Runs one step of a set-up and shows it as one line: what it does, and how many seconds it took.

    python deploy/packages/progress.py "install requirements.lock" pip install ...

On a terminal the line also shows which package pip is at. What the command printed is shown if it
fails. Needs only the standard library: the step may be the one that creates `.venv`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence

MAX_KEPT_LINES = 40
EXIT_INTERRUPTED = 130

_COLLECTING = re.compile(r"(?:Collecting|Obtaining) (\S+)")
_INSTALLING = "Installing collected packages"


def main(argv: Sequence[str]) -> int:
    title, *command = argv
    began = time.monotonic()
    terminal = sys.stdout.isatty()
    _show(terminal, f"{title} …")
    output: deque[str] = deque(maxlen=MAX_KEPT_LINES)
    packages = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                output.append(line)
                if found := _COLLECTING.match(line):
                    packages += 1
                    if terminal:
                        _show(terminal, f"{title} … {packages}: {found[1]}")
                elif terminal and line.startswith(_INSTALLING):
                    _show(terminal, f"{title} … {packages} packages, installing them")
        except KeyboardInterrupt:
            process.wait()
            sys.stdout.write("\n")
            return EXIT_INTERRUPTED
    count = f"{packages} packages, " if packages else ""
    seconds = f"{count}{time.monotonic() - began:.0f} s"
    if terminal:
        _show(terminal, f"{title}: {seconds}\n")
    else:
        sys.stdout.write(f" {seconds}\n")
    if process.returncode:
        sys.stderr.writelines(output)
        sys.stderr.write(f"{title}: failed with exit status {process.returncode}\n")
    return process.returncode


def _show(terminal: bool, text: str) -> None:
    """Writes over the line of a terminal; elsewhere begins the step's only line."""
    sys.stdout.write(f"\r\x1b[K{text}" if terminal else text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
