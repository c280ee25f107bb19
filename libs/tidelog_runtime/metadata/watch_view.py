"""The state of a watch: the changes that it has yielded and those that it yields next. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from tidelog_runtime.metadata.store import Changed, Snapshot

# Bounds on the time that a watch may lag behind the revision in the store's other answers.
FIRST_SILENCE_MS = 10_000
MAX_SILENCE_MS = 640_000


class SilenceBound:
    """How long a watch may be silent while the store has newer revisions.

    After `ms`, the watch reads a snapshot. If that shows no changes, the newer revisions
    concern keys outside the prefix, and the bound doubles.
    """

    def __init__(self) -> None:
        self.ms = FIRST_SILENCE_MS

    def read_again(self, *, has_differences: bool) -> None:
        self.ms = FIRST_SILENCE_MS if has_differences else min(2 * self.ms, MAX_SILENCE_MS)


class WatchView:
    """The changes of a watch. All changes up to `revision` have been yielded, and none after it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.prefix = snapshot.prefix
        self.revision = snapshot.revision
        # Modification revisions of the keys as the consumer knows them, to compute differences.
        self._mod_revisions = _mod_revisions(snapshot)
        # Changes of the last revision, of which more may follow.
        self._incomplete: list[Changed] = []

    def take(self, changes: Iterable[Changed], *, more: bool = False) -> list[Sequence[Changed]]:
        """Returns the new ones among changes that arrive in order, grouped by revision.

        - `more`: the last revision may continue in the next call, and is held back until then.
        """
        new = [change for change in changes if change.revision > self.revision]
        groups = [list(group) for _, group in groupby([*self._incomplete, *new], _revision)]
        self._incomplete = groups.pop() if more and groups else []
        for group in groups:
            self._record(group)
        return [tuple(group) for group in groups]

    def advance(self, revision: int) -> None:
        """Notes that there are no further changes up to `revision`."""
        self.revision = max(self.revision, revision)

    def lose_stream(self) -> None:
        """Drops an incomplete revision; the next stream sends it again from its start."""
        self._incomplete = []

    def catch_up(self, snapshot: Snapshot) -> Sequence[Changed]:
        """Returns the differences to a later snapshot, ordered by key."""
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
