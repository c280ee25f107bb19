"""Runs commands on a real terminal (a pseudo-terminal) of a given width, and its screen."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import closing
from select import select
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

# One process runs all commands of a width: starting Python takes longer than any of them.
_PROGRAM = """
import json, sys
from tidelog.cli.__main__ import app

for arguments in json.loads(sys.argv[1]):
    try:
        app(arguments)
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
    sys.stdout.write(f"\\x1e{status}\\x1e")
    sys.stdout.flush()
"""
_END = re.compile(r"\x1e(\d+)\x1e")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ROWS = 50
WAIT_SECONDS = 240


class Shown(NamedTuple):
    """What one command wrote to the terminal, without colours. `stderr`: of all commands."""

    status: int
    lines: list[str]
    stderr: str

    def rows(self, columns: int) -> list[str]:
        """The rows of a screen of that width, on which the terminal breaks longer lines."""
        return [row for line in self.lines for row in chop_cells(line, columns) or [""]]

    def broken(self, value: str, columns: int) -> bool:
        """Whether a value is on no row in one piece. One that is wider than the terminal cannot be,
        and has to be in one line."""
        where = self.lines if cell_len(value) > columns else self.rows(columns)
        return not any(value in row for row in where)


def shown_on_terminal(
    commands: Sequence[Sequence[str]], columns: int, environment: dict[str, str]
) -> list[Shown]:
    """Returns the output of each command."""
    controlling, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps(commands)],
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
        env={**own, "TERM": "xterm-256color", **environment},
    )
    os.close(terminal)
    with closing(os.fdopen(controlling, "rb", buffering=0)) as screen, process:
        try:
            written = _read(screen.fileno())
            _, said = process.communicate(timeout=WAIT_SECONDS)
        finally:
            process.kill()
    text = _CONTROL.sub("", written.decode()).replace("\r\n", "\n")
    parts = _END.split(text)
    assert len(parts) == 2 * len(commands) + 1, (parts[-1], said.decode())
    outputs = zip(parts[::2], parts[1::2], strict=False)
    return [Shown(int(s), out.splitlines(), said.decode()) for out, s in outputs]


def _read(screen: int) -> bytes:
    """Reads until the last process that has the terminal open has ended."""
    written, deadline = bytearray(), time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        readable, _, _ = select([screen], [], [], 1.0)
        if not readable:
            continue
        try:
            piece = os.read(screen, 1 << 16)
        except OSError:  # EIO: no process has the other end open
            break
        if not piece:
            break
        written += piece
    return bytes(written)
