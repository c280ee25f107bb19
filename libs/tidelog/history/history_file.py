"""History files. Several processes may write one file at the same time; one process reads it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tidelog.history.client_operations import HistoryError, Operation
from tidelog.history.history_format import (
    check_header,
    decode_operation,
    encode_operation,
    header_line,
)

# Fits a poll of some hundred thousand records.
MAX_LINE_BYTES = 16 << 20
_FILE_MODE = 0o644
_ADVANCE_BYTES = 1 << 20


class HistoryWriter:
    """Appends to a history file, and creates it if there is none.

    Each call is one `write(2)` in append mode. Lines that several processes of one machine write
    into one file stay intact and in order, and survive a SIGKILL of the process. There is no
    buffer: an invocation that is written late would seem to come after operations that it
    overlapped.
    """

    def __init__(self, path: Path) -> None:
        _begin(path)
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)

    def write(self, operation: Operation) -> None:
        """Writes one operation. Raises `OSError`, after which the file's last line may be torn."""
        self._append(encode_operation(operation))

    def write_all(self, operations: Iterable[Operation]) -> None:
        """Writes operations in one call, which is cheaper than one by one."""
        self._append(b"".join(map(encode_operation, operations)))

    def _append(self, lines: bytes) -> None:
        # After a short write the rest would land behind lines of other processes.
        _write(self._descriptor, lines, self._path)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _begin(path: Path) -> None:
    """Creates the file atomically with its header, also if several processes begin at once."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
    try:
        _write(descriptor, header_line(), path)
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        os.close(descriptor)
        draft.unlink()


def _write(descriptor: int, lines: bytes, path: Path) -> None:
    """Writes in one call. Raises `OSError` if that writes only a part."""
    written = os.write(descriptor, lines)
    if written < len(lines):
        raise OSError(
            f"{path} took {written} of {len(lines)} bytes: its disk is full, or "
            f"a limit is reached; this history cannot be used"
        )


def read_history(
    path: Path, advance: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[int, Operation]]:
    """Yields the operations with their line numbers.

    `advance` is called from time to time with the number of further bytes that were read. Raises
    `OSError`, and `HistoryError` with the line.
    """
    with path.open("rb") as file:
        number = read_bytes = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            try:
                if number == 1:
                    check_header(checked_line(line))
                else:
                    yield number, decode_operation(checked_line(line))
            except HistoryError as error:
                raise HistoryError(f"{path}, line {number}: {error}") from error
            read_bytes += len(line)
            if read_bytes >= _ADVANCE_BYTES:
                advance(read_bytes)
                read_bytes = 0
        if number == 0:
            raise HistoryError(f"{path} is empty; a history has at least its first line")


def checked_line(line: bytes) -> bytes:
    """Returns the line unchanged. Raises `HistoryError` if it has no newline at its end."""
    if not line.endswith(b"\n"):
        raise HistoryError(f"the line has no end: torn, or longer than {MAX_LINE_BYTES >> 20} MiB")
    return line
