"""Prepares stdin, stdout and stderr of the process. They may be closed, or lead to a full disk."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(OSError):
    """stdout accepts no more data."""


class _Stdout(io.FileIO):
    """After a failed write it discards all data. At exit the interpreter flushes what is left and
    would fail again."""

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
                f"cannot write to stdout: {error.strerror}; the output is not complete"
            ) from error


def prepare_streams() -> None:
    """Prepares the streams of the process. Call once, before any output. Raises nothing."""
    # In the order of descriptors: each takes the number of the next file that is opened.
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
    """Redirects stdout after its reader closed it (`| head`). The interpreter must not flush the
    rest again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
