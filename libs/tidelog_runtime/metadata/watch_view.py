"""What a watch has handed out so far, and what it hands out next. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from tidelog_runtime.metadata.store import Changed, Snapshot

# How long a watch may be behind what the store's other answers tell and bring nothing.
FIRST_SILENCE_MS = 10_000
MAX_SILENCE_MS = 640_000


class SilenceBound:
    """A watch that is silent for longer than `ms` is not believed, and all is read anew.

    Where that shows nothing new, the store's revisions are other people's, outside the
    watch's prefix: then it is done less and less often."""

    def __init__(self) -> None:
        self.ms = FIRST_SILENCE_MS

    def read_anew(self, *, has_differences: bool) -> None:
        self.ms = FIRST_SILENCE_MS if has_differences else min(2 * self.ms, MAX_SILENCE_MS)


class WatchView:
    """`revision`: all changes up to it have been handed out, and none after it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.prefix = snapshot.prefix
        self.revision = snapshot.revision
        # What the consumer believes, as far as differences need it.
        self._mod_revisions = _mod_revisions(snapshot)
        # Changes of a revision of which more may follow.
        self._incomplete: list[Changed] = []

    def take(self, changes: Iterable[Changed], *, more: bool = False) -> list[Sequence[Changed]]:
        """The new ones among changes that come in order, grouped by revision. `more`:
        the last revision may continue in the next call, and is kept until then."""
        new = [change for change in changes if change.revision > self.revision]
        groups = [list(group) for _, group in groupby([*self._incomplete, *new], _revision)]
        self._incomplete = groups.pop() if more and groups else []
        for group in groups:
            self._record(group)
        return [tuple(group) for group in groups]

    def advance(self, revision: int) -> None:
        """Up to `revision` there is nothing that has not been taken."""
        self.revision = max(self.revision, revision)

    def lose_stream(self) -> None:
        """The rest of an incomplete revision will not come; it comes anew from its start."""
        self._incomplete = []

    def catch_up(self, snapshot: Snapshot) -> Sequence[Changed]:
        """The differences to a later snapshot, in the order of their keys."""
        self.lose_stream()
        deleted = (
            Changed(key, None, snapshot.revision)
            for key in self._mod_revisions
            if key not in snapshot.items
        )
        written = (
            Changed(key, item, item.mod_revision)
            for key, item in snapshot.items.items()
            if self._mod_revisions.get(key) != item.mod_revision
        )
        differences = tuple(sorted((*deleted, *written), key=lambda change: change.key))
        self._mod_revisions = _mod_revisions(snapshot)
        self.revision = snapshot.revision
        return differences

    def _record(self, group: Sequence[Changed]) -> None:
        for change in group:
            if change.value is None:
                self._mod_revisions.pop(change.key, None)
            else:
                self._mod_revisions[change.key] = change.value.mod_revision
        self.revision = group[-1].revision


def _revision(change: Changed) -> int:
    return change.revision


def _mod_revisions(snapshot: Snapshot) -> dict[str, int]:
    return {key: item.mod_revision for key, item in snapshot.items.items()}
