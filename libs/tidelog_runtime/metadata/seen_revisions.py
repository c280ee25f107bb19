"""Detects that the store was wiped, restored or replaced by another one. No I/O."""

from __future__ import annotations

from tidelog_runtime.metadata.store import StoreRolledBackError

_REMEDY = (
    "restore its newest backup, or, if its contents are meant to be gone, stop every "
    "service and start with empty data directories"
)


class SeenRevisions:
    """The highest revision seen in answers or reported by others, and the etcd cluster's id."""

    def __init__(self) -> None:
        self.highest = 0
        self._cluster_id: int | None = None
        self._rolled_back = ""

    def check(self) -> None:
        """Raises `StoreRolledBackError` permanently once the store was rolled back.

        Its revision may have passed the old one since, and then the rollback is not visible any
        more.
        """
        if self._rolled_back:
            raise StoreRolledBackError(self._rolled_back)

    def observe_revision(self, revision: int) -> None:
        """Takes note of a revision at which another process has seen the store."""
        self.highest = max(self.highest, revision)

    def answered(
        self, revision: int, cluster_id: int, *, at_least: int, wrote: bool = False
    ) -> None:
        """Takes note of the revision and cluster of an answer.

        An answer older than `at_least`, the highest revision seen before its request was sent,
        is a rollback. `wrote`: the request created this revision, so until then the
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
        """Returns whether an answer is older than what was seen. The member may lag behind.

        Raises `StoreRolledBackError` for another cluster.
        """
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
