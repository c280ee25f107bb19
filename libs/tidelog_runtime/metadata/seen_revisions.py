"""Notices that the store has been wiped, restored, or exchanged for another. No I/O."""

from __future__ import annotations

from tidelog_runtime.metadata.store import StoreRolledBackError

_REMEDY = (
    "restore its newest backup, or, if its contents are meant to be gone, stop every "
    "service and start with empty data directories"
)


class SeenRevisions:
    """The highest revision that any answer has shown, or others have told of, and the etcd
    cluster that answers."""

    def __init__(self) -> None:
        self.highest = 0
        self._cluster_id: int | None = None
        self._rolled_back = ""

    def check(self) -> None:
        """Raises `StoreRolledBackError` for good once the store has fallen back: it may
        have grown past the old revision since, and then looks like the same."""
        if self._rolled_back:
            raise StoreRolledBackError(self._rolled_back)

    def heard_of(self, revision: int) -> None:
        """Somebody else rests on what the store had at this revision."""
        self.highest = max(self.highest, revision)

    def answered(
        self, revision: int, cluster_id: int, *, at_least: int, wrote: bool = False
    ) -> None:
        """Takes note of an answer that cannot be older than `at_least`, what had been
        seen when its request was sent. `wrote`: the request took this revision, so that the
        store was at the one before. Raises `StoreRolledBackError`."""
        self._same_cluster(cluster_id)
        found_at = revision - wrote
        if found_at < at_least:
            self._rolled_back = (
                f"etcd is at revision {found_at} and was at {at_least} before: it was wiped or "
                f"restored from an old backup; {_REMEDY}"
            )
        self.check()
        self.highest = max(self.highest, revision)

    def is_behind(self, revision: int, cluster_id: int) -> bool:
        """Whether an answer that may come from a member that lags behind is older than
        what was seen. Raises `StoreRolledBackError` for another cluster."""
        self._same_cluster(cluster_id)
        return revision < self.highest

    def _same_cluster(self, cluster_id: int) -> None:
        if self._cluster_id is None:
            self._cluster_id = cluster_id
        elif cluster_id != self._cluster_id:
            self._rolled_back = (
                f"another etcd cluster answers ({cluster_id:x}) than before "
                f"({self._cluster_id:x}); set the endpoints to one cluster, or {_REMEDY}"
            )
        self.check()
