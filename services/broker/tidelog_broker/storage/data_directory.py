"""Whose data a directory holds, and since when it is intact ("Intact or not" in
docs/internals/protocol.md).

A replica set is intact since a broker epoch when nothing that was written since has been
lost. It stays intact over a clean stop, and over a crash of the process while the machine
continued: the page cache outlives a process. After a reboot without a clean stop only what
was synced is intact.

All of this holds for the files that the previous incarnation wrote. `not_intact_reason` says how a
copy, an older backup and another directory are told from them (docs/adr/0001).
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

import structlog

from tidelog.inspection.model import CRASHED, REBOOTED, STOPPED
from tidelog_broker.background import RunBlocking
from tidelog_broker.log.checked_file import (
    DamagedFileError,
    read_checked,
    write_checked_with_id,
)
from tidelog_broker.log.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS, OffsetCheckpoint
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.file_id import FileId
from tidelog_broker.storage.copied_files import sync_tree
from tidelog_runtime.metadata.broker_directories import (
    BrokerDirectory,
    RejectionCause,
    known_fields,
)

IDENTITY_FILE = "broker.json"
REVISION_FILE = "store-revision"
REPLICAS = "replicas"
_KIND = "broker"
_REVISION_KIND = "store-revision"

_log = structlog.get_logger()


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
    # Under which name its cluster had its keys in the store; empty: an older release wrote it.
    cluster_name: str = ""
    boot_id: str = ""
    stopped_cleanly: bool = False
    whole_since: int = 0
    synced_whole_since: int = 0
    # The highest revision of the metadata store that this broker has acted on.
    store_revision: int = 0
    # The last two: of the registration that the store had, and of the one that was to follow it.
    registration_tokens: tuple[str, ...] = ()
    # Of the last clean stop that ended a registration.
    clean_stop_token: str = ""
    # Found to be a copy at a start since the last registration.
    copied: bool = False
    # All of that copy is on the disk.
    copy_synced: bool = False

    @property
    def directory_id(self) -> str:
        """Created once with the directory; the stored field keeps the name of older releases."""
        return self.node_uuid

    @property
    def has_registered(self) -> bool:
        """Or has been about to. Releases that keep no tokens leave epochs, of which a reboot takes
        the first back."""
        return bool(self.registration_tokens or self.whole_since or self.synced_whole_since)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Identity:
        """Of this release, of older ones, which have fewer fields, and of later ones."""
        known = known_fields(cls, stored)
        tokens = tuple(stored.get("registration_tokens", ()))
        return cls(**{**known, "registration_tokens": tokens})


def new_life(
    former: Identity, boot_id: str, *, same_files: bool = True, lost_copy: bool = False
) -> Identity:
    """What a starting process may claim of what its predecessor left. `same_files`: not a copy of
    what that one wrote. `lost_copy`: the machine rebooted before that copy was synced."""
    return replace(
        former,
        boot_id=boot_id,
        stopped_cleanly=False,
        whole_since=former.whole_since if _is_whole(former, boot_id) else 0,
        synced_whole_since=0 if lost_copy else former.synced_whole_since,
        copied=former.copied or not same_files,
        copy_synced=former.copy_synced and same_files,
    )


def _is_whole(former: Identity, boot_id: str) -> bool:
    """No power failure can have taken what was not synced."""
    return former.stopped_cleanly or former.boot_id == boot_id != ""


def not_intact_reason(identity: Identity, record: BrokerDirectory | None) -> str:
    """Why the directory may lack what was acknowledged under its broker id, by what the store has
    of the last registration of that id; empty: it lacks nothing. `record`: None: no broker that
    keeps one has registered yet.

    Every registration leaves a token in both, and so does every clean stop that ends one. What
    does not know the last of them is older, or another directory. A copy that knows them was
    taken since, and is trusted only after a clean stop: any other may end below what was
    acknowledged later."""
    if record is None:
        return (
            "the store has no record of its last registration"
            if identity.registration_tokens and identity.whole_since
            else ""
        )
    if record.directory_id != identity.directory_id:
        return f"it replaces data directory {record.directory_id}"
    if record.registration_token not in identity.registration_tokens:
        return "it is an older copy: a copy of it, or the original, has registered since"
    if record.clean_stop_token and record.clean_stop_token != identity.clean_stop_token:
        return "it is an older copy, taken before its broker's last clean stop"
    if identity.copied and not record.clean_stop_token:
        return "it was copied or restored without a clean stop before"
    return ""


def may_end_registration(
    identity: Identity, record: BrokerDirectory | None, registered_uuid: str
) -> bool:
    """Whether the registration that is there is surely that of a dead process, which used this
    very directory: only one process at a time can lock it. Of a copy, or where the machine has
    rebooted since, the other process may be alive elsewhere: its lease has to end.
    `registered_uuid`: as the registration names it."""
    if registered_uuid != identity.directory_id or identity.copied:
        return False
    if record is None:
        return True
    return (
        record.directory_id == identity.directory_id
        and record.registration_token in identity.registration_tokens
        and record.boot_id == identity.boot_id != ""
    )


def how_it_ended(former: Identity, boot_id: str) -> str:
    """The process before this one, by what it left."""
    if former.stopped_cleanly:
        return STOPPED
    known = former.boot_id != "" and boot_id != ""
    return REBOOTED if known and former.boot_id != boot_id else CRASHED


def is_unused(disk: Disk, path: PurePath, identity: Identity) -> bool:
    """Whether no broker has registered with it and it holds nothing: a start was rejected right
    after the directory was made, and another broker may have it."""
    return not identity.has_registered and not disk.list_names(path / REPLICAS)


def stored_identity(disk: Disk, path: PurePath) -> Identity | None:
    """For reports: None where the directory is new, or its file cannot be read. `store_revision`:
    the highest that the directory remembers."""
    try:
        found = read_checked(disk, path / IDENTITY_FILE, _KIND)
        if not found:
            return None
        identity = Identity.from_json(found)
        noted = int(_read_noted(disk, path).get("revision", 0))
    except (DamagedFileError, OSError, TypeError, ValueError):
        return None
    return replace(identity, store_revision=max(identity.store_revision, noted))


class DataDirectory:
    """Writes every change of the identity before anything rests on it."""

    def __init__(
        self,
        disk: Disk,
        path: PurePath,
        identity: Identity,
        rng: random.Random,
        noted_revision: int = 0,
    ) -> None:
        self._disk = disk
        self.path = path
        self._path = path / IDENTITY_FILE
        self._revision_path = path / REVISION_FILE
        self._rng = rng
        self.identity = identity
        # "stopped", "crashed" or "rebooted"; empty: the directory is new.
        self.previous_end = ""
        self._noted_revision = noted_revision
        # A process before this one may have failed to sync the copy that this directory is.
        self._rewrites_copy = False
        # A registration of this process has been confirmed.
        self._has_registered = False

    @classmethod
    def open(
        cls, disk: Disk, path: PurePath, *, broker_id: int, boot_id: str, rng: random.Random
    ) -> DataDirectory:
        """Begins a new life in the directory; raises `DataDirectoryError`, and OSError."""
        disk.make_directory(path)
        try:
            found = read_checked(disk, path / IDENTITY_FILE, _KIND)
        except DamagedFileError as error:
            raise DataDirectoryError(
                f"{error}; restore the file, or move the directory away to start empty, with "
                "--replace-directory and the id that the next rejection names"
            ) from error
        previous_end, is_unfinished = "", False
        noted = _read_noted(disk, path)
        if found is None:
            # Where only its owner may read the directory above, it was there before us.
            with suppress(PermissionError):
                disk.sync_directory(path.parent)
            # Replicas without an identity were put there by another program.
            copied = bool(disk.list_names(path / REPLICAS))
            identity = Identity(broker_id, _new_uuid(rng), boot_id=boot_id, copied=copied)
        else:
            stored = Identity.from_json(found)
            previous_end = how_it_ended(stored, boot_id)
            same_boot = stored.boot_id == boot_id != ""
            same_files = _are_same_files(disk, path, found, noted, same_boot=same_boot)
            is_unfinished = (stored.copied and not stored.copy_synced) and _names_itself(
                disk, path / IDENTITY_FILE, found.get("file"), same_boot=same_boot
            )
            lost_copy = is_unfinished and not _is_whole(stored, boot_id)
            if lost_copy:
                # Before anything says that this boot is the one in which the copy was made.
                disk.remove(path / RECOVERY_POINTS)
                disk.sync_directory(path)
            identity = new_life(stored, boot_id, same_files=same_files, lost_copy=lost_copy)
        if identity.broker_id != broker_id and not is_unused(disk, path, identity):
            raise DataDirectoryError(
                f"{path} belongs to broker {identity.broker_id}, this is broker {broker_id}; "
                f"set data_dir to this broker's own directory, or broker_id to "
                f"{identity.broker_id}"
            )
        identity = replace(identity, broker_id=broker_id)
        directory = cls(disk, path, identity, rng, int(noted.get("revision", 0)))
        directory.previous_end = previous_end
        directory._rewrites_copy = is_unfinished
        directory._write(identity)
        return directory

    @property
    def lacks_identity(self) -> bool:
        """It holds replicas, and `broker.json` was made after them."""
        has_replicas = bool(self._disk.list_names(self.path / REPLICAS))
        return has_replicas and not self.identity.has_registered

    def join_cluster(self, cluster_id: str | None, name: str = "") -> None:
        """The cluster that the metadata store holds under the configured `name`; None: it holds
        none. Raises `DataDirectoryError` if that is not the one whose data this is."""
        own_name = self.identity.cluster_name
        is_named_otherwise = own_name not in ("", name)
        of_which = f"{own_name!r} ({self.identity.cluster_id})" if own_name else ""
        whose = f"{self._path.parent} belongs to cluster {of_which or self.identity.cluster_id}"
        if cluster_id is None and is_named_otherwise:
            raise DataDirectoryError(
                f"{whose}, and this broker is configured for cluster {name!r}, of which the "
                f"metadata store holds nothing; set cluster to {own_name}, or data_dir to a "
                "directory of its own"
            )
        if cluster_id is None:
            raise DataDirectoryError(
                f"{whose}, and the metadata store holds no cluster of the configured name: it was "
                "wiped, or it is not the store of this data; restore its newest backup, correct "
                "etcd_endpoints or cluster, or move the directory away to start empty",
                RejectionCause.STORE,
            )
        if self.identity.cluster_id not in ("", cluster_id):
            found = f"{name!r} ({cluster_id})" if is_named_otherwise else cluster_id
            remedy = f"set cluster to {own_name}, or " if is_named_otherwise else ""
            raise DataDirectoryError(
                f"{whose}, and the metadata store is that of cluster {found}; {remedy}set data_dir "
                "or etcd_endpoints to those of one cluster, or restore the newest backup of the "
                "store if it was wiped since"
            )
        self._update(cluster_id=cluster_id, cluster_name=name)

    async def sync_copy(self, run_blocking: RunBlocking) -> None:
        """Before anything rests on what a copy says is synced: whoever copied it need not have
        synced it. Does nothing for any other directory. Raises OSError."""
        if not self.identity.copied or self.identity.copy_synced:
            return
        now = asyncio.get_running_loop().time
        began = now()
        tree = await sync_tree(self._disk, self.path, run_blocking, rewrite=self._rewrites_copy)
        _log.info(
            "copied_directory_synced",
            data_dir=str(self.path),
            files=len(tree.files),
            directories=len(tree.directories),
            seconds=round(now() - began, 3),
            written_again=self._rewrites_copy,
        )
        self._update(copy_synced=True)

    def settle(self, record: BrokerDirectory | None) -> str:
        """Takes back what the store's record of the broker id disproves, before anything rests on
        it; returns why, empty where the claims stand. Raises OSError."""
        reason = not_intact_reason(self.identity, record)
        return self.distrust(reason) if reason else ""

    def distrust(self, reason: str) -> str:
        """From now on it counts as intact only since its next registration; returns `reason`.
        Raises OSError."""
        if self.identity.whole_since or self.identity.synced_whole_since:
            changed = replace(self.identity, whole_since=0, synced_whole_since=0)
            self._write(changed)
            self.identity = changed
        return reason

    def begin_registration(self, record: BrokerDirectory | None) -> str:
        """Returns the token of the registration that comes next, which is on the disk by then: the
        store may name it without this process ever having an answer. Raises OSError.

        A token that was never registered is used again, because a transaction that is still
        under way may yet register it."""
        known = self.identity.registration_tokens
        if record is not None and record.registration_token not in known:
            known = ()
        if known and (record is None or record.registration_token != known[-1]):
            return known[-1]
        changed = replace(self.identity, registration_tokens=(*known[-1:], _new_uuid(self._rng)))
        self._write(changed)
        self.identity = changed
        return changed.registration_tokens[-1]

    def registered(self, broker_epoch: int) -> None:
        """From now on everything that is written is kept track of. Raises OSError: the file
        then claims less than is true."""
        identity = self.identity
        self._has_registered = True
        self._update(
            whole_since=identity.whole_since or broker_epoch,
            synced_whole_since=identity.synced_whole_since or broker_epoch,
            clean_stop_token="",
            copied=False,
            copy_synced=False,
        )

    def stopped_cleanly(self, store_revision: int) -> None:
        """After a registration the stop has a token, which the store is to have too; without one
        the store still has that of an earlier stop."""
        highest = max(self.seen_revision, store_revision)
        token = self.identity.clean_stop_token
        if self._has_registered:
            token = _new_uuid(self._rng)
        self._update(stopped_cleanly=True, store_revision=highest, clean_stop_token=token)

    @property
    def seen_revision(self) -> int:
        """The highest revision of the store that this broker is known to have seen."""
        return max(self.identity.store_revision, self._noted_revision)

    def note_revision(self, store_revision: int) -> None:
        """Now and then, so that also after a crash an older store is known as such. Not
        synced: what a power failure takes back is a few seconds. Raises OSError."""
        if store_revision > self._noted_revision:
            self._noted_revision = store_revision
            write_checked_with_id(
                self._disk,
                self._revision_path,
                _REVISION_KIND,
                lambda file: {"revision": store_revision, "file": file},
                sync=False,
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
            self._write(changed)

    def _write(self, identity: Identity) -> None:
        write_checked_with_id(
            self._disk,
            self._path,
            _KIND,
            lambda file: {**asdict(identity), "file": file},
            sync=True,
        )


def _new_uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _read_noted(disk: Disk, path: PurePath) -> dict[str, Any]:
    try:
        noted = read_checked(disk, path / REVISION_FILE, _REVISION_KIND)
    except DamagedFileError:
        return {}  # torn by a power failure; the identity has an older one
    # Older releases wrote the number alone.
    return noted if isinstance(noted, dict) else {"revision": noted or 0}


def _are_same_files(
    disk: Disk,
    path: PurePath,
    identity: dict[str, Any],
    noted: dict[str, Any],
    *,
    same_boot: bool,
) -> bool:
    """Whether the files are the very ones that the previous incarnation wrote."""
    named = {IDENTITY_FILE: identity.get("file"), REVISION_FILE: noted.get("file")}
    # Where the store is quiet these alone change with what is acknowledged.
    for checkpoint in (HIGH_WATERMARKS, RECOVERY_POINTS):
        named[checkpoint] = OffsetCheckpoint(disk, path / checkpoint).read().file
    return all(
        _names_itself(disk, path / name, file, same_boot=same_boot) for name, file in named.items()
    )


def _names_itself(
    disk: Disk, path: PurePath, named: Sequence[int] | None, *, same_boot: bool
) -> bool:
    """Whether the file is the one that was written with this name. Files of older releases name
    none, and pass, as do those that are absent or torn by a power failure."""
    if named is None:
        return True
    return disk.file_id(path).is_same_file(FileId.from_json(named), same_boot=same_boot)
