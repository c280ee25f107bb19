"""The directories of an archive: its table, and its state directory.

Readers open `OUTPUT/**/*.parquet`, so every Parquet file below OUTPUT has to be a committed
one. The commit log, the checkpoint, the lock and the staged files are in the state directory,
by default `OUTPUT.state`. It has to be on the file system of OUTPUT, because staged files are
renamed into the table. Earlier releases kept it in `OUTPUT/_archive`; the first writer moves it
by a rename.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog_pipeline.job_command import JobError
from tidelog_pipeline.storage.directory import Directory, sync_directory

# The state directory of earlier releases, below OUTPUT.
FORMER = "_archive"
SUFFIX = ".state"
LOCK = "lock"
# Names the archive of a state directory that was configured.
_TABLE = "table.json"
_OTHER_FILE_SYSTEM = frozenset({errno.EXDEV})
_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class ArchiveLayout:
    """The directories of one archive. Errors are `JobError`s.

    - `chosen`: the state directory; None: the default.
    """

    def __init__(self, table: Directory, chosen: Path | None = None) -> None:
        self.table = table
        self._chosen = chosen
        self.state_root = chosen or table.root.with_name(table.root.name + SUFFIX)
        self._former_root = table.root / FORMER
        if chosen is not None:
            self._check_chosen(chosen)

    def check_exists(self) -> None:
        """Raises `JobError` if there is no archive, for actions that create none.

        A mistyped path, or a volume that is not mounted, is not an archive without faults.
        """
        if self._has_content() or self._former_root.is_dir() or self._has_table():
            return
        raise JobError(
            f"there is no archive in {self.table.root}: it has no files, and {self.state_root} has "
            "no commits; check output and state_directory, and whether their volume is mounted"
        )

    def current_state(self) -> Directory:
        """Returns the present state directory, or the future one of a new archive.

        For readers: it changes nothing.
        """
        if not self._has_commits() and self._former_root.is_dir():
            return Directory(self._former_root)
        self._check_belongs()
        return Directory(self.state_root)

    @contextmanager
    def held_by_writer(self) -> Iterator[Directory]:
        """Yields the state directory, created or migrated if needed, with an exclusive lock."""
        self.table.root.mkdir(parents=True, exist_ok=True)
        self._migrate()
        self._check_belongs()
        with self._explained():
            self.state_root.mkdir(parents=True, exist_ok=True)
        state = Directory(self.state_root)
        with state.held(LOCK, of=self.table.root):
            with self._explained():
                self._check_renames()
            # Another archive may have taken it meanwhile.
            self._check_belongs()
            if self._chosen is not None and state.read(_TABLE) is None:
                state.create(_TABLE, json.dumps({"output": self._relative_table()}).encode())
            yield state

    def _migrate(self) -> None:
        """Moves the state directory by a rename, which is atomic."""
        if self._former_root == self.state_root or not self._former_root.is_dir():
            return
        has_commits, has_content = self._has_commits(), self._has_content()
        if not self._former_root.is_dir():
            # Another writer of this release has moved it meanwhile.
            return
        if has_commits:
            raise JobError(
                f"{self._former_root} and {self.state_root} both have commits of the archive "
                f"{self.table.root}: an earlier release has written to it after the migration. "
                "Stop that release, check the archive with `archive reconcile`, and remove "
                f"{self._former_root}"
            )
        if has_content:
            raise JobError(
                f"{self.state_root} has files and no commits, so that {self._former_root}, which "
                "has the commits of this archive, cannot be moved there: move these files away"
            )
        with self.table.held(f"{FORMER}/{LOCK}", create=False), self._explained():
            self.state_root.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._former_root.rename(self.state_root)
            except FileNotFoundError:
                # Another writer of this release was faster.
                return
            sync_directory(self.state_root.parent)
            sync_directory(self.table.root)

    def _has_content(self) -> bool:
        """Returns whether the state directory has content. A rename can replace an empty one."""
        try:
            return any(self.state_root.iterdir())
        except FileNotFoundError:
            return False

    def _has_commits(self) -> bool:
        state = Directory(self.state_root)
        return any(state.names(folder) for folder in ("log", "state"))

    def _check_belongs(self) -> None:
        state = Directory(self.state_root)
        if not self._has_content() and self._has_table():
            raise JobError(
                f"{self.table.root} has Parquet files, and there are no commits of an archive in "
                f"{self.state_root}: set state_directory to where they are, restore them, or give "
                "an empty directory as output"
            )
        text = None if self._chosen is None else state.read(_TABLE)
        if text is None:
            return
        try:
            output = json.loads(text)["output"]
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(
                f"{self.state_root / _TABLE} is damaged, which names the archive of this state "
                f"directory: remove it if that is {self.table.root}"
            ) from error
        if output != self._relative_table():
            raise JobError(
                f"{self.state_root} is the state directory of another archive ({output}, relative "
                f"to it), not of {self.table.root}: give each archive its own, or remove "
                f"{self.state_root / _TABLE} if it was moved"
            )

    def _has_table(self) -> bool:
        topics = [name for name in self.table.names(".") if name.startswith("topic=")]
        return any(self.table.has_files(topic) for topic in topics)

    def _check_renames(self) -> None:
        """Checks that a staged file can be renamed into the table."""
        probe = f".probe-{os.getpid()}"
        source, target = self.state_root / probe, self.table.root / probe
        try:
            source.touch()
            source.rename(target)
        finally:
            source.unlink(missing_ok=True)
            target.unlink(missing_ok=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _OTHER_FILE_SYSTEM:
                raise JobError(
                    f"the state directory {self.state_root} is on another file system than "
                    f"{self.table.root}: mount a volume that holds both (output = a directory "
                    "within it), or set state_directory to a directory on the same file system, "
                    f"such as {self._former_root}, where readers of {self.table.root}/**/*.parquet "
                    "may see staged files"
                ) from error
            if error.errno in _NOT_WRITABLE:
                raise JobError(
                    f"the state directory {self.state_root} cannot be written ({error.strerror}): "
                    "let this user write there, or set state_directory to another directory on the "
                    f"file system of {self.table.root}"
                ) from error
            raise

    def _check_chosen(self, chosen: Path) -> None:
        root = self.table.root
        if root.is_relative_to(chosen):
            raise JobError(
                f"state_directory {chosen} is or contains the output {root}; give one beside it"
            )
        if chosen.is_relative_to(root) and not chosen.relative_to(root).parts[0].startswith(
            ("_", ".")
        ):
            raise JobError(
                f"state_directory {chosen} is within the output {root}, where readers would see "
                f"staged files: give one beside it, or one whose name there begins with _"
            )

    def _relative_table(self) -> str:
        return os.path.relpath(self.table.root, self.state_root)
