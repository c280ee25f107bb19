"""Detects that another program wrote the files of a data directory, and makes them the broker's
own.

They are synced: cp and rsync do not sync, so that a power failure within the next minute would
lose what they wrote. A file that is written in place and has other names as well (`cp -al`) is
replaced by a copy: appends and cuts would change it in the directory that it was copied from, which
may be used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePath

import structlog

from tidelog.log_format import segment_base
from tidelog_broker.background import RunBlocking
from tidelog_broker.log.bad_sectors import replace_file
from tidelog_broker.log.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS, OffsetCheckpoint
from tidelog_broker.log.disk import TEMPORARY_SUFFIX, Disk, Tree, copy_bytes
from tidelog_broker.log.epoch_file import EPOCHS_NAME
from tidelog_broker.log.file_id import FileId
from tidelog_broker.log.misplaced_batches import is_set_aside

_log = structlog.get_logger()

# File systems commit together what several threads sync.
SYNC_THREADS = 8


async def sync_tree(
    disk: Disk, path: PurePath, run_blocking: RunBlocking, *, rewrite: bool
) -> Tree:
    """Syncs every file and every name below `path`, and returns them as they were found.

    Temporary files are left out. `rewrite`: writes each file again first, because after a failed
    sync the kernel regards as written what it could not write. Raises the first OSError, which
    names the file or directory."""
    trees: list[Tree] = []
    await run_blocking(lambda: trees.append(disk.tree(path)))
    [tree] = trees
    shared = {path for path in tree.linked if _is_written_in_place(path.name)}
    await _in_threads(run_blocking, partial(_replace_file, disk), sorted(shared))
    if shared:
        _log.info("shared_files_copied", path=str(path), files=len(shared))
    own = [p for p in tree.files if p not in shared and p.suffix != TEMPORARY_SUFFIX]
    await _in_threads(run_blocking, partial(_sync_file, disk, rewrite=rewrite), own)
    await _in_threads(run_blocking, disk.sync_directory, tree.directories)
    # A parent directory that only its owner may read was there before the copy.
    with suppress(PermissionError):
        disk.sync_directory(path.parent)
    return tree


def _is_written_in_place(name: str) -> bool:
    """Whether it is a file that changes, or becomes one; all others are replaced by new files."""
    return segment_base(name) is not None or is_set_aside(name) or name == EPOCHS_NAME


def _replace_file(disk: Disk, path: PurePath) -> None:
    if not replace_file(disk, path):
        _log.error("sector_unreadable", path=str(path))


async def _in_threads(
    run_blocking: RunBlocking, sync: Callable[[PurePath], None], paths: Sequence[PurePath]
) -> None:
    """Syncs paths in threads. All end after the first error, which is raised."""
    errors: list[OSError] = []

    def sync_share(share: Sequence[PurePath]) -> None:
        for path in share:
            if errors:
                return
            try:
                sync(path)
            except OSError as error:
                error.filename = error.filename or str(path)
                errors.append(error)

    shares = [paths[first::SYNC_THREADS] for first in range(SYNC_THREADS)]
    await asyncio.gather(*(run_blocking(partial(sync_share, share)) for share in shares if share))
    if errors:
        raise errors[0]


def _sync_file(disk: Disk, path: PurePath, *, rewrite: bool) -> None:
    file = disk.open(path)
    try:
        if rewrite:
            copy_bytes(file, file, 0, disk.file_size(path))
        file.sync()
    finally:
        file.close()


def are_same_files(
    disk: Disk,
    path: PurePath,
    named: Mapping[str, Sequence[int] | None],
    *,
    same_boot: bool,
) -> bool:
    """Returns whether the files are the same files that the previous incarnation wrote.

    `named`: the ids that the directory holds of its files, of itself and of its directories, by
    name. Those of the checkpoints are read
    here: if the store does not change, only the checkpoints change with acknowledged data."""
    ids = dict(named)
    for checkpoint in (HIGH_WATERMARKS, RECOVERY_POINTS):
        ids[checkpoint] = OffsetCheckpoint(disk, path / checkpoint).read().file
    return all(
        names_itself(disk, path / name, file, same_boot=same_boot) for name, file in ids.items()
    )


def names_itself(
    disk: Disk, path: PurePath, named: Sequence[int] | None, *, same_boot: bool
) -> bool:
    """Returns whether the file counts as the one that was written with this id.

    Files of older releases contain no id and pass, as do missing files and files torn by a power
    failure."""
    if named is None:
        return True
    try:
        found = disk.file_id(path)
    except FileNotFoundError:
        return False
    return found.is_same_file(FileId.from_json(named), same_boot=same_boot)


def may_name_itself(
    disk: Disk, path: PurePath, named: Sequence[int] | None, *, same_boot: bool
) -> bool:
    """Like `names_itself`, but passes unless the ids show two files."""
    if named is None:
        return True
    return disk.file_id(path).may_be_same_file(FileId.from_json(named), same_boot=same_boot)
