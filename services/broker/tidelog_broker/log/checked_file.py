"""Small state files: a line that names kind, version and CRC32C, then JSON, so that a
person can read them and a torn one is known."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from crc32c import crc32c

from tidelog_broker.log.disk import Disk

_VERSION = 1


class DamagedFileError(Exception):
    """The file is not one that was written whole; the message names it and says why."""


def _first_line(kind: str, body: bytes) -> bytes:
    return f"tidelog {kind} {_VERSION} {crc32c(body):08x}\n".encode()


def write_checked(disk: Disk, path: PurePath, kind: str, value: Any, *, sync: bool) -> None:
    body = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    disk.write_atomically(path, _first_line(kind, body) + body, sync=sync)


def read_checked(disk: Disk, path: PurePath, kind: str) -> Any:
    """None where there is no such file; raises `DamagedFileError`."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    first, newline, body = data.partition(b"\n")
    expected = _first_line(kind, body)
    if first + newline != expected:
        raise DamagedFileError(
            f"{path} begins with {first[:60]!r} where its content asks for {expected[:-1]!r}"
        )
    return json.loads(body)
