"""The demo's input: every Python file of the standard library, in several passes."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TARGET_BYTES = 300_000_000


class SourceRecord(NamedTuple):
    key: bytes
    value: bytes


class Source:
    """Holds every file's content once; the passes differ only in their keys."""

    def __init__(self) -> None:
        root = Path(sysconfig.get_path("stdlib"))
        self.files = {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*.py"))
            if "site-packages" not in path.parts
        }
        self.pass_bytes = sum(map(len, self.files.values()))
        self.passes = -(-TARGET_BYTES // self.pass_bytes)

    @property
    def records(self) -> int:
        return len(self.files) * self.passes

    @property
    def total_bytes(self) -> int:
        return self.pass_bytes * self.passes

    def __iter__(self) -> Iterator[SourceRecord]:
        for number in range(self.passes):
            for path, content in self.files.items():
                yield SourceRecord(key_of(number, path), content)

    def hashes(self) -> dict[str, bytes]:
        return {path: digest(content) for path, content in self.files.items()}


def key_of(number: int, path: str) -> bytes:
    return f"{number}:{path}".encode()


def path_of(key: bytes) -> str:
    return key.decode().partition(":")[2]


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
