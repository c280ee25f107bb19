"""Syncs what another program wrote into a data directory. cp and rsync do not sync, so that a power
failure within the next minute would lose what they wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePath

from tidelog_broker.background import RunBlocking
from tidelog_broker.log.disk import Disk, Tree, copy_bytes

# File systems commit together what several threads sync.
SYNC_THREADS = 8


async def sync_tree(
    disk: Disk, path: PurePath, run_blocking: RunBlocking, *, rewrite: bool
) -> Tree:
    """Syncs every file and every name below `path`, and returns them.

    `rewrite`: writes each file again first, because after a failed sync the kernel regards as
    written what it could not write. Raises the first OSError, which names the file or directory."""
    trees: list[Tree] = []
    await run_blocking(lambda: trees.append(disk.tree(path)))
    [tree] = trees
    sync_file = partial(_sync_file, disk, rewrite=rewrite)
    await _in_threads(run_blocking, sync_file, tree.files)
    await _in_threads(run_blocking, disk.sync_directory, tree.directories)
    # A parent directory that only its owner may read was there before the copy.
    with suppress(PermissionError):
        disk.sync_directory(path.parent)
    return tree


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
