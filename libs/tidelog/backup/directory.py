"""The files of a backup. Small files appear complete or not at all, also after a loss of power.

manifest.json             what the backup holds; nothing else belongs to it
manifest.json.next        the plan of a run that has not ended
offsets.json              which offsets records get in a restored cluster
topics/TOPIC/PARTITION/   segment files, in the format of brokers; a file with the suffix
                          .partial is being written
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from tidelog.backup.manifest import (
    MAX_MANIFEST_BYTES,
    BackupError,
    Manifest,
    decode_manifest,
    encode_manifest,
)
from tidelog.backup.offset_mapping import offsets_document
from tidelog.model import TopicPartition

MANIFEST = "manifest.json"
PLAN = "manifest.json.next"
OFFSETS = "offsets.json"
TOPICS = "topics"
LOCK = ".lock"
TEMPORARY_SUFFIX = ".tmp"


class UnwritableBackupError(OSError):
    """The disk of the backup rejected a write. What was copied before stays for the next run."""

    def __str__(self) -> str:
        return str(self.args[1])


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Adds the path, and what to do, to an error of the disk."""
    try:
        yield
    except UnwritableBackupError:
        raise
    except OSError as error:
        raise UnwritableBackupError(
            error.errno,
            f"{path} cannot be written: {error.strerror or error}; correct that (free space, or "
            "permissions) and repeat the command, which continues where it ended",
        ) from error


class BackupDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path

    def partition_path(self, partition: TopicPartition) -> Path:
        """Topic names contain no character with a meaning in paths."""
        return self.path / TOPICS / partition.topic / str(partition.partition)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Creates the directory, and excludes other writers. Raises `BackupError`."""
        if not self.path.exists():
            with writing(self.path):
                self.path.mkdir(parents=True)
                sync_directory(self.path.parent)
        elif not self.path.is_dir():
            raise BackupError(f"{self.path} is a file; give a directory")
        self._check_ownership()
        descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupError(
                    f"another process writes the backup in {self.path}; wait until it has ended"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def _check_ownership(self) -> None:
        names = {entry.name for entry in self.path.iterdir()} - {LOCK, PLAN + TEMPORARY_SUFFIX}
        if names and not names & {MANIFEST, PLAN}:
            raise BackupError(
                f"{self.path} has files that belong to no backup ({min(names)}); give an empty "
                "directory or one that does not exist"
            )

    def read(self) -> Manifest:
        """Returns the backup. Raises `BackupError`."""
        found = self.find_manifest()
        if found is not None:
            return found
        if (self.path / PLAN).exists():
            raise BackupError(
                f"the first backup into {self.path} has not ended; run tidelog backup create "
                "again, which continues it"
            )
        raise BackupError(f"{self.path} holds no backup: there is no {self.path / MANIFEST}")

    def find_manifest(self) -> Manifest | None:
        return self._read(MANIFEST)

    def find_plan(self) -> Manifest | None:
        return self._read(PLAN)

    def write_plan(self, plan: Manifest) -> None:
        self._write(PLAN, encode_manifest(plan))

    def commit(self, manifest: Manifest) -> None:
        """Makes this the content of the backup, and ends the run."""
        offsets = json.dumps(offsets_document(manifest), indent=1).encode() + b"\n"
        self._write(OFFSETS, offsets)
        self._write(MANIFEST, encode_manifest(manifest))
        (self.path / PLAN).unlink(missing_ok=True)
        sync_directory(self.path)

    def _read(self, name: str) -> Manifest | None:
        path = self.path / name
        try:
            size = path.stat().st_size
            if size > MAX_MANIFEST_BYTES:
                raise BackupError(f"{path} has {size} bytes; a manifest has {MAX_MANIFEST_BYTES}")
            return decode_manifest(path.read_bytes(), path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _write(self, name: str, content: bytes) -> None:
        path = self.path / name
        draft = path.with_name(name + TEMPORARY_SUFFIX)
        with writing(path):
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            sync_directory(self.path)


def sync_directory(path: Path) -> None:
    """Makes names of files durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
