"""Keeps a second process out of a data directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from tidelog_broker.storage.data_directory import DataDirectoryError
from tidelog_runtime.metadata.broker_directories import RejectionCause

_log = structlog.get_logger()


@contextmanager
def hold_lock(data_dir: Path) -> Iterator[None]:
    """Locks the data directory for this process.

    Raises `DataDirectoryError` if another process holds the lock. The lock of the directory itself
    outlives a removal of the lock file, which processes of older releases lock.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    directory = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with (data_dir / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _lock_directory(directory)
            except BlockingIOError:
                raise DataDirectoryError(
                    f"{data_dir} is in use by another broker process; stop that one, or give this "
                    "one its own data_dir",
                    RejectionCause.DIRECTORY_IN_USE,
                ) from None
            yield
    finally:
        os.close(directory)


def _lock_directory(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        # NFS locks only what can be written to.
        _log.warning("directory_not_locked", reason=str(error), effect="the lock file alone counts")
