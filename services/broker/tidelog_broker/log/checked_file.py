"""Small state files: a line with kind, version and CRC32C, then JSON.

People can read them, and a torn file is detected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from crc32c import crc32c

from tidelog_broker.log.disk import Disk
from tidelog_broker.log.file_id import FileId

_VERSION = 1


class DamagedFileError(Exception):
    """The file is incomplete or damaged. The message names it and says why."""


class LaterFileError(DamagedFileError):
    """A later release wrote the file, in a version of its form that this one does not read."""


def _first_line(kind: str, body: bytes) -> bytes:
    return f"tidelog {kind} {_VERSION} {crc32c(body):08x}\n".encode()


def write_checked(disk: Disk, path: PurePath, kind: str, value: Any, *, sync: bool) -> None:
    disk.write_atomically(path, _content(kind, value), sync=sync)


def write_checked_with_id(
    disk: Disk, path: PurePath, kind: str, value_for: Callable[[FileId], Any], *, sync: bool
) -> None:
    """Like `write_checked`, for a value that contains the id of the file that holds it."""

    def render(file_id: FileId) -> bytes:
        return _content(kind, value_for(file_id))

    disk.write_with_id(path, render, sync=sync)


def _content(kind: str, value: Any) -> bytes:
    body = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    return _first_line(kind, body) + body


def read_checked(disk: Disk, path: PurePath, kind: str) -> Any:
    """Returns None if there is no such file. Raises `DamagedFileError`, and `LaterFileError` for
    a later version."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    first, newline, body = data.partition(b"\n")
    expected = _first_line(kind, body)
    if first + newline != expected:
        written = first.split(b" ")
        if written[:2] == expected.split(b" ")[:2] and _is_later(written[2:3]):
            raise LaterFileError(
                f"{path} has version {written[2].decode()} of its form, and this release reads "
                f"version {_VERSION}: a later release wrote it"
            )
        raise DamagedFileError(
            f"{path} begins with {first[:60]!r} where its content requires {expected[:-1]!r}"
        )
    return json.loads(body)


def _is_later(version: list[bytes]) -> bool:
    return bool(version) and version[0].isdigit() and int(version[0]) > _VERSION
