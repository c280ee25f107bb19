"""stdin, stdout and stderr of the process, as whoever starts it may leave them: closed, or on a
disk that is full."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(OSError):
    """stdout takes nothing more."""


class _Stdout(io.FileIO):
    """After a write that failed everything is dropped: the interpreter writes again what is left
    when it ends, and would fail at that."""

    _has_failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        if self._has_failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._has_failed = True
            raise OutputError(
                f"cannot write to stdout: {error.strerror}; what it has got is not complete"
            ) from error


def prepare_streams() -> None:
    """Of the whole process; called once, before anything is written. Raises nothing."""
    # In the order of their numbers, each of which goes to what is opened next.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Stdout(os.dup(sys.stdout.fileno()), "w")),
            encoding=sys.stdout.encoding,
            errors=sys.stdout.errors,
            line_buffering=sys.stdout.line_buffering,
        )


def stop_writing() -> None:
    """Whoever read our output has seen enough (`| head`); the interpreter must not try
    again to write the rest when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
