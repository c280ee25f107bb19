"""Whose data a directory holds, and whether it is whole (section 3 of ARCHITECTURE.md).

A replica set is whole since a broker epoch when nothing that was written since has been
lost. It stays whole over a clean stop, and over a crash of the process while the machine
went on: the page cache outlives a process. After a reboot without a clean stop only what
was synced is whole.
"""

from __future__ import annotations

import random
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath

from tidelog.inspection.model import CRASHED, REBOOTED, STOPPED
from tidelog_broker.log.checked_file import DamagedFileError, read_checked, write_checked
from tidelog_broker.log.disk import Disk
from tidelog_runtime.metadata.broker_directories import RejectionCause

_KIND = "broker"
_REVISION_KIND = "store-revision"


class DataDirectoryError(Exception):
    """The directory cannot be used by this broker; the message says why, and what to do."""

    def __init__(self, message: str, cause: RejectionCause = RejectionCause.DATA_DIRECTORY) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Identity:
    """What `broker.json` says. `whole_since`, `synced_whole_since`: broker epochs; 0: only
    since the registration that comes next."""

    broker_id: int
    node_uuid: str
    cluster_id: str = ""
    boot_id: str = ""
    stopped_cleanly: bool = False
    whole_since: int = 0
    synced_whole_since: int = 0
    # The highest revision of the metadata store that this broker has acted on.
    store_revision: int = 0


def new_life(former: Identity, boot_id: str) -> Identity:
    """What a starting process may claim of what its predecessor left."""
    same_boot = former.boot_id == boot_id and boot_id != ""
    whole = former.stopped_cleanly or same_boot
    return replace(
        former,
        boot_id=boot_id,
        stopped_cleanly=False,
        whole_since=former.whole_since if whole else 0,
    )


def how_it_ended(former: Identity, boot_id: str) -> str:
    """The process before this one, by what it left."""
    if former.stopped_cleanly:
        return STOPPED
    known = former.boot_id != "" and boot_id != ""
    return REBOOTED if known and former.boot_id != boot_id else CRASHED


def stored_directory_id(disk: Disk, path: PurePath) -> str:
    """For messages: empty where the directory is new, or cannot say."""
    try:
        found = read_checked(disk, path / "broker.json", _KIND)
    except (DamagedFileError, OSError, ValueError):
        return ""
    return str(found["node_uuid"]) if found else ""


class DataDirectory:
    """Writes every change of the identity before anything rests on it."""

    def __init__(self, disk: Disk, path: PurePath, identity: Identity) -> None:
        self._disk = disk
        self._path = path / "broker.json"
        self._revision_path = path / "store-revision"
        self.identity = identity
        # "stopped", "crashed" or "rebooted"; empty: the directory is new.
        self.previous_end = ""
        try:
            noted = read_checked(disk, self._revision_path, _REVISION_KIND)
        except DamagedFileError:
            noted = None  # torn by a power failure; the identity has an older one
        self._noted_revision = int(noted or 0)

    @classmethod
    def open(
        cls, disk: Disk, path: PurePath, *, broker_id: int, boot_id: str, rng: random.Random
    ) -> DataDirectory:
        """Begins a new life in the directory; raises `DataDirectoryError`, and OSError."""
        disk.make_directory(path)
        try:
            found = read_checked(disk, path / "broker.json", _KIND)
        except DamagedFileError as error:
            raise DataDirectoryError(
                f"{error}; restore the file, or move the directory away to start empty"
            ) from error
        previous_end = ""
        if found is None:
            # Where only its owner may read the directory above, it was there before us.
            with suppress(PermissionError):
                disk.sync_directory(path.parent)
            node_uuid = str(uuid.UUID(int=rng.getrandbits(128), version=4))
            identity = Identity(broker_id, node_uuid, boot_id=boot_id)
        else:
            former = Identity(**found)
            previous_end = how_it_ended(former, boot_id)
            identity = new_life(former, boot_id)
        if identity.broker_id != broker_id:
            raise DataDirectoryError(
                f"{path} belongs to broker {identity.broker_id}, this is broker {broker_id}; "
                f"set data_dir to this broker's own directory, or broker_id to "
                f"{identity.broker_id}"
            )
        directory = cls(disk, path, identity)
        directory.previous_end = previous_end
        directory._write()
        return directory

    def join_cluster(self, cluster_id: str | None) -> None:
        """The cluster that the metadata store holds; None: it holds none. Raises
        `DataDirectoryError` if that is not the one whose data this is."""
        whose = f"{self._path.parent} belongs to cluster {self.identity.cluster_id}"
        if cluster_id is None:
            raise DataDirectoryError(
                f"{whose}, and the metadata store holds no cluster of the configured name: it was "
                "wiped, or it is not the store of this data; restore its newest backup, correct "
                "etcd_endpoints or cluster, or move the directory away to start empty",
                RejectionCause.STORE,
            )
        if self.identity.cluster_id not in ("", cluster_id):
            raise DataDirectoryError(
                f"{whose}, and the metadata store is that of cluster {cluster_id}; set data_dir or "
                "etcd_endpoints to those of one cluster, or restore the newest backup of the "
                "store if it was wiped since"
            )
        self._update(cluster_id=cluster_id)

    def registered(self, broker_epoch: int) -> None:
        """From now on everything that is written is kept track of."""
        identity = self.identity
        self._update(
            whole_since=identity.whole_since or broker_epoch,
            synced_whole_since=identity.synced_whole_since or broker_epoch,
        )

    def stopped_cleanly(self, store_revision: int) -> None:
        highest = max(self.seen_revision, store_revision)
        self._update(stopped_cleanly=True, store_revision=highest)

    @property
    def seen_revision(self) -> int:
        """The highest revision of the store that this broker is known to have seen."""
        return max(self.identity.store_revision, self._noted_revision)

    def note_revision(self, store_revision: int) -> None:
        """Now and then, so that also after a crash an older store is known as such. Not
        synced: what a power failure takes back is a few seconds. Raises OSError."""
        if store_revision > self._noted_revision:
            self._noted_revision = store_revision
            write_checked(
                self._disk, self._revision_path, _REVISION_KIND, store_revision, sync=False
            )

    def require_revision(self, store_revision: int) -> None:
        """Raises `DataDirectoryError` if the metadata store is older than what this broker
        has acted on: restored from a backup, it may take sound replicas for strays
        (interleaving 18)."""
        if store_revision < self.seen_revision:
            raise DataDirectoryError(
                f"the metadata store is at revision {store_revision}, and {self._path.parent} has "
                f"followed it to {self.seen_revision} already: it was restored from an "
                "old backup; restore the newest one, or move the directory away to start empty",
                RejectionCause.STORE,
            )

    def _update(self, **changes: object) -> None:
        changed = replace(self.identity, **changes)  # type: ignore[arg-type]
        if changed != self.identity:
            self.identity = changed
            self._write()

    def _write(self) -> None:
        write_checked(self._disk, self._path, _KIND, asdict(self.identity), sync=True)
