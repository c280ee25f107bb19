"""The commits of an archive in their directory, and what a crash has left undone of the last.

`_archive/log/000000000012.json` is a commit, `_archive/state/...` what all up to one add up to,
`_archive/staging` holds files before they are published: nothing that begins with `_` is seen by
readers of the archive.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import NamedTuple

from tidelog_pipeline.archive.commits import (
    ArchiveState,
    Commit,
    commit_from_json,
    commit_to_json,
    state_from_json,
    state_to_json,
)
from tidelog_pipeline.storage.directory import Directory

_OWN = "_archive"
LOCK, CHECKPOINT, FORM = f"{_OWN}/lock", f"{_OWN}/checkpoint", f"{_OWN}/form.json"
_LOG, _STATES, _STAGING = f"{_OWN}/log", f"{_OWN}/state", f"{_OWN}/staging"
# So many commits are read at most to know what an archive holds.
STATE_EVERY = 100
# So often it is looked for a moment between two commits. What is still not published then, a writer
# that has died has left.
_LOOKS, _LOOK_PAUSE_S = 50, 0.2


class Seen(NamedTuple):
    """`files`: those that readers see, in order, with what the archive does not know."""

    state: ArchiveState
    files: tuple[str, ...]


class ArchiveLog:
    """One writer at a time: who holds `LOCK`. Readers may `load` at any time."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.state = ArchiveState()

    def load(self) -> ArchiveState:
        """As it was at some moment. Raises `TidelogError` for a damaged one."""
        state = ArchiveState()
        states = self.directory.names(_STATES)
        if states:
            name = f"{_STATES}/{states[-1]}"
            state = state_from_json(self.directory.read(name) or b"", name)
        while (commit := self._commit(state.number + 1)) is not None:
            state.apply(commit)
        self.state = state
        return state

    def seen(self, pause: Callable[[float], object] = time.sleep) -> Seen:
        """State and files as they were at one moment, though a writer be at work."""
        for _ in range(_LOOKS):
            state = self.load()
            is_published = not self.directory.at(_staging(state.number)).exists()
            files = tuple(self.directory.files("."))
            if is_published and self._commit(state.number + 1) is None:
                break
            pause(_LOOK_PAUSE_S)
        return Seen(state, files)

    def recover(self) -> ArchiveState:
        """For the writer, who begins: finishes the last commit, and removes what none has taken."""
        state = self.load()
        last = self._commit(state.number)
        if last is not None:
            self._finish(last)
        self.directory.remove(_STAGING)
        return state

    def stage(self) -> str:
        """The name of a directory for the files of the next commit; what an attempt before it has
        left there is removed."""
        staging = _staging(self.state.number + 1)
        self.directory.remove(staging)
        return staging

    def commit(self, commit: Commit) -> None:
        """Its files lie in its staging, under the paths that they are to have."""
        for file in commit.added:
            self.directory.sync(f"{commit.staging}/{file.path}")
        self.directory.create(_commit_path(self.state.number + 1), commit_to_json(commit))
        self.state.apply(commit)
        self._finish(commit)
        if self.state.number % STATE_EVERY == 0:
            self._keep_state()

    def _finish(self, commit: Commit) -> None:
        if commit.replaces:
            if not all(self.directory.at(file.path).exists() for file in commit.added):
                self.directory.exchange(f"{commit.staging}/{commit.replaces}", commit.replaces)
        else:
            for file in commit.added:
                self.directory.publish(f"{commit.staging}/{file.path}", file.path)
        self.directory.remove(commit.staging)

    def _keep_state(self) -> None:
        """Commits are kept for as long again, for readers who have begun with the state before."""
        number = self.state.number
        self.directory.create(f"{_STATES}/{number:012}.json", state_to_json(self.state))
        keep_from = f"{number - STATE_EVERY:012}.json"
        for folder in (_LOG, _STATES):
            for name in self.directory.names(folder):
                if name < keep_from:
                    self.directory.remove(str(PurePosixPath(folder, name)))

    def _commit(self, number: int) -> Commit | None:
        path = _commit_path(number)
        text = self.directory.read(path)
        return None if text is None else commit_from_json(text, path)


def _staging(number: int) -> str:
    return f"{_STAGING}/{number:012}"


def _commit_path(number: int) -> str:
    return f"{_LOG}/{number:012}.json"
