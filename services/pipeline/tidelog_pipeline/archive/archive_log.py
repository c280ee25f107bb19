"""The commits of an archive in their directory, and the recovery of the last one after a crash.

In the state directory (`layout`):

- `log/000000000012.json` is a commit;
- `state/...` holds the sum of all commits up to one of them;
- `staging` holds files before they are published;
- `removed` holds files that `repair` has removed from the table.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import NamedTuple

from tidelog_pipeline.archive.core.commit_json import (
    DamagedCommitError,
    UncommittedFilesError,
    commit_from_json,
    commit_to_json,
    state_from_json,
    state_to_json,
)
from tidelog_pipeline.archive.core.commits import AddedFile, ArchiveState, Commit
from tidelog_pipeline.storage.directory import Directory, is_fault_of_file

CHECKPOINT = "checkpoint"
REMOVED = "removed"
_LOG, _STATES, _STAGING = "log", "state", "staging"
_NAME = re.compile(r"\d{12}\.json")
# A state is stored after this many commits, so that readers need only a few of them.
STATE_EVERY = 100
# Polls for a moment at which no commit is being published. If files are still unpublished after all
# polls, a writer has died and left them.
_ATTEMPTS, _ATTEMPT_PAUSE_S = 50, 0.2

_log = logging.getLogger(__name__)


class ArchiveSnapshot(NamedTuple):
    """An archive at one moment. `files`: all files that readers see, sorted."""

    state: ArchiveState
    files: tuple[str, ...]


class ArchiveLog:
    """The commit log of an archive.

    There is one writer at a time, which holds the lock of `layout`. Readers may `load` at any
    time.

    - `directory`: of the table.
    - `find_state_directory`: returns the directory of the state, which a writer may move while a
      reader loads.
    """

    def __init__(self, directory: Directory, find_state_directory: Callable[[], Directory]) -> None:
        self.directory = directory
        self._find_state_directory = find_state_directory
        self.state_directory = find_state_directory()
        self.state = ArchiveState()

    def load(self) -> ArchiveState:
        """Loads the state of some moment during the call. Raises `DamagedCommitError`."""
        while True:
            self.state_directory = self._find_state_directory()
            state = self._loaded()
            if self._find_state_directory().root == self.state_directory.root:
                break
        self.state = state
        return state

    def _loaded(self) -> ArchiveState:
        """Starts from the last readable state; the commits after the one before it are kept."""
        problem: DamagedCommitError | None = None
        for name in reversed(self._names(_STATES)):
            path = f"{_STATES}/{name}"
            try:
                state = state_from_json(self._read(path) or b"", path)
                break
            except DamagedCommitError as error:
                problem = problem or error
                _log.warning("%s", error.message)
        else:
            state = ArchiveState()
        try:
            self._apply_commits(state)
        except DamagedCommitError as error:
            raise problem or error from None
        return state

    def _apply_commits(self, state: ArchiveState) -> None:
        while True:
            commit = self._commit(state.number + 1)
            if commit is not None:
                state.apply(commit)
                continue
            later = [name for name in self._names(_LOG) if name > _name(state.number)]
            if not later:
                return
            if later[0] != _name(state.number + 1):
                first = self.state_directory.at(_commit_path(state.number + 1))
                raise DamagedCommitError(f"{first} is missing, and later commits are there")

    def load_readable(self, *, store: bool) -> list[str]:
        """Loads the readable commits for a repair, after `load` has failed.

        Returns the faults of the other commits, a sentence each.

        - `store`: whether to finish the last commit and to store this state, so that `load` finds
          it from now on. Its number is higher than those of all commits.
        """
        self.state_directory = self._find_state_directory()
        problems: list[str] = []
        last: Commit | None = None
        state = ArchiveState()
        for name in reversed(self._names(_STATES)):
            try:
                path = f"{_STATES}/{name}"
                state = state_from_json(self._read(path) or b"", path)
                break
            except DamagedCommitError as error:
                problems.append(error.what)
        for name in self._names(_LOG):
            number = _number(name)
            if number <= state.number:
                continue
            if number > state.number + 1:
                problems.append(f"commits {state.number + 1} to {number - 1} are missing")
            state.number = number - 1
            last = None
            try:
                last = self._commit(number)
                assert last is not None, "the only writer cannot have removed a listed file"
                (state.apply_after_gap if problems else state.apply)(last)
            except DamagedCommitError as error:
                problems.append(error.what)
                state.number = number
        self.state = state
        if store:
            self._keep_staged(last)
        state.number = 1 + max([state.number, *map(_number, self._names(_STATES))])
        if store:
            self._create_state()
        return problems

    def _keep_staged(self, last: Commit | None) -> None:
        """Publishes the files of the last commit, or keeps them as removed ones if it is damaged.

        The stored state will have another number, so that no later writer finds these files.
        """
        staging = _staging(self.state.number)
        if last is not None:
            self._finish(last)
        elif self.state_directory.at(staging).exists():
            kept = f"{REMOVED}/{self.state.number:012}.staged"
            self.state_directory.publish(staging, str(self.state_directory.at(kept)))

    def snapshot(self, pause: Callable[[float], object] = time.sleep) -> ArchiveSnapshot:
        """Returns state and files of the same moment, even if a writer is active."""
        for _ in range(_ATTEMPTS):
            state = self.load()
            is_published = not self.state_directory.at(_staging(state.number)).exists()
            files = tuple(self._table_files())
            if is_published and self._commit(state.number + 1) is None:
                break
            pause(_ATTEMPT_PAUSE_S)
        return ArchiveSnapshot(state, files)

    def recover(self) -> list[str]:
        """Finishes the last commit and removes uncommitted files, when a writer starts.

        Returns the paths of the commit's lost files. Raises `DamagedCommitError`, and after
        that work `UncommittedFilesError`: unnamed files are the only sign that the newest commit is
        lost.
        """
        self.load()
        lost = self.finish_last()
        paths = self.unnamed_files()
        if paths:
            raise UncommittedFilesError(paths)
        return lost

    def unnamed_files(self) -> list[str]:
        """Returns the sorted files of the table that no commit names."""
        return unnamed(self._table_files(), self.state)

    def _table_files(self) -> list[str]:
        """Returns the sorted files that readers see, from the directories of topics only.

        The root of a volume has others, such as `lost+found`, which may not be listed. A symbolic
        link without files of commits may lead out of the archive, and a repair would move files
        from there.
        """
        known = {hour.partition("/")[0] for hour in self.state.files}
        topics = [
            name
            for name in self.directory.names(".")
            if name.startswith("topic=")
            and (name in known or not self.directory.at(name).is_symlink())
        ]
        found = [path for topic in topics for path in self.directory.files(topic)]
        return sorted([*found, *(name for name in topics if self.directory.at(name).is_file())])

    def finish_last(self) -> list[str]:
        """As `recover`, for the loaded state."""
        state = self.state
        last = self._commit(state.number)
        lost = [] if last is None else self._finish(last)
        self.state_directory.remove(_STAGING)
        return lost

    def stage(self) -> str:
        """Returns the path of a directory for the files of the next commit.

        Removes files that an earlier attempt has left there.
        """
        staging = _staging(self.state.number + 1)
        self.state_directory.remove(staging)
        return str(self.state_directory.at(staging))

    def commit(self, commit: Commit) -> None:
        """Commits files that are staged under their final paths."""
        for file in commit.added:
            self.state_directory.sync(f"{commit.staging}/{file.path}")
        number = self.state.number + 1
        own_staging = commit._replace(staging=_staging(number))
        self.state_directory.create(_commit_path(number), commit_to_json(own_staging))
        self.state.apply(commit)
        self._finish(own_staging)
        if number % STATE_EVERY == 0:
            self._keep_state()

    def _finish(self, commit: Commit) -> list[str]:
        """Publishes the files of a commit. Can be repeated after a crash at any point.

        Returns the paths of files that are neither staged nor published: they were lost later.
        """
        # The directory may have been moved since the commit.
        staging = _staging(self.state.number)
        for path in commit.removed:
            self._remove(path, keeps=commit.keeps_removed)
        staged = {f: self.state_directory.at(f"{staging}/{f.path}") for f in commit.added}
        missing = [file for file in commit.added if not self.directory.at(file.path).exists()]
        if commit.replaces:
            if missing and all(path.exists() for path in staged.values()):
                hour = self.state_directory.at(f"{staging}/{commit.replaces}")
                self.directory.exchange(str(hour), commit.replaces)
                missing = []
        else:
            missing = [file for file in commit.added if not self._publish(file, str(staged[file]))]
        self.state_directory.remove(staging)
        return [file.path for file in missing]

    def _publish(self, file: AddedFile, staged: str) -> bool:
        """Returns False if the file is lost."""
        if not self.state_directory.at(staged).exists():
            return self.directory.at(file.path).exists()
        self.directory.publish(staged, file.path)
        return True

    def _remove(self, path: str, *, keeps: bool) -> None:
        if keeps and self.directory.at(path).exists():
            aside = self.state_directory.at(f"{REMOVED}/{self.state.number:012}/{path}")
            self.directory.publish(path, str(aside))
        self.directory.remove(path)
        self.directory.remove_empty(path.rpartition("/")[0])

    def _keep_state(self) -> None:
        """Stores the state, and removes commits and states before the previous state.

        Also removes the unfinished ones of writers that were killed. Readers may have started from
        the previous state.
        """
        number = self.state.number
        self._create_state()
        keep_from = f"{number - STATE_EVERY:012}.json"
        for folder in (_LOG, _STATES):
            self.state_directory.remove_unfinished(folder)
            for name in self._names(folder):
                if name < keep_from:
                    self.state_directory.remove(str(PurePosixPath(folder, name)))

    def _create_state(self) -> None:
        self.state_directory.create(
            f"{_STATES}/{_name(self.state.number)}", state_to_json(self.state)
        )

    def _commit(self, number: int) -> Commit | None:
        path = _commit_path(number)
        text = self._read(path)
        return None if text is None else commit_from_json(text, path)

    def _names(self, folder: str) -> list[str]:
        """Returns the sorted names of commits or states; others may be copies by an editor."""
        return [name for name in self.state_directory.names(folder) if _NAME.fullmatch(name)]

    def _read(self, path: str) -> bytes | None:
        """Returns None if there is no file. Raises `DamagedCommitError` if the disk lost it."""
        try:
            return self.state_directory.read(path)
        except OSError as error:
            if not is_fault_of_file(error):
                raise
            raise DamagedCommitError(f"{path} cannot be read ({error.strerror})") from error


def unnamed(files: Iterable[str], state: ArchiveState) -> list[str]:
    """Returns the sorted files, of those that readers see, that no commit names."""
    return sorted(set(files).difference(state.paths))


def _staging(number: int) -> str:
    return f"{_STAGING}/{number:012}"


def _commit_path(number: int) -> str:
    return f"{_LOG}/{_name(number)}"


def _number(name: str) -> int:
    return int(name.partition(".")[0])


def _name(number: int) -> str:
    return f"{number:012}.json"
