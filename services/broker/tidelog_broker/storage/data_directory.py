"""The identity of a data directory, and since when it is intact ("Intact or not" in
docs/internals/protocol.md).

A directory is intact since a broker epoch if nothing that was written since then has been lost. It
stays intact over a clean stop, and over a crash of the process while the machine runs: the page
cache outlives a process. After a reboot without a clean stop only synced data is intact.

This requires the files that the previous incarnation wrote. `not_intact_reason` detects a copy, an
older backup and another directory (docs/adr/0001)."""

from __future__ import annotations

import asyncio
import random
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

import structlog

from tidelog.feature_levels import FIRST_LEVEL, SUPPORTED, LevelRange, unsupported
from tidelog.inspection.state_reports import CRASHED, REBOOTED, STOPPED
from tidelog.version import installed_version
from tidelog_broker.background import RunBlocking
from tidelog_broker.log.checked_file import (
    DamagedFileError,
    LaterFileError,
    read_checked,
    write_checked_with_id,
)
from tidelog_broker.log.checkpoint import RECOVERY_POINTS
from tidelog_broker.log.disk import Disk
from tidelog_broker.storage.copied_files import are_same_files, may_name_itself, sync_tree
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
    """This broker cannot use the directory; the message says why, and what to do."""

    def __init__(self, message: str, cause: RejectionCause = RejectionCause.DATA_DIRECTORY) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of `broker.json`.

    `whole_since` and `synced_whole_since` are the broker epochs since which the directory is
    intact; 0: since the next registration."""

    broker_id: int
    node_uuid: str
    cluster_id: str = ""
    # The name of its cluster in the metadata store; empty: an older release wrote the file.
    cluster_name: str = ""
    boot_id: str = ""
    stopped_cleanly: bool = False
    whole_since: int = 0
    synced_whole_since: int = 0
    # The highest revision of the metadata store that this broker has acted on.
    store_revision: int = 0
    # The last two tokens: of the registration that the store had, and of the one to follow it.
    registration_tokens: tuple[str, ...] = ()
    # Token of the last clean stop that ended a registration.
    clean_stop_token: str = ""
    # A start since the last registration found the directory to be a copy.
    copied: bool = False
    # All files of the copy are on disk.
    copy_synced: bool = False
    # The highest feature level of its cluster at which this broker ran: the files may need it.
    feature_level: int = FIRST_LEVEL

    @property
    def directory_id(self) -> str:
        """The id of the directory, created with it. The stored field keeps the name of older
        releases."""
        return self.node_uuid

    @property
    def has_registered(self) -> bool:
        """Whether a broker has registered with the directory, or was about to.

        Releases without tokens leave only epochs; a reboot resets `whole_since`."""
        return bool(self.registration_tokens or self.whole_since or self.synced_whole_since)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Identity:
        """Reads what this release, an older one with fewer fields, or a later one has written."""
        known = known_fields(cls, stored)
        tokens = tuple(stored.get("registration_tokens", ()))
        return cls(**{**known, "registration_tokens": tokens})


def next_incarnation(
    former: Identity, boot_id: str, *, same_files: bool = True, lost_copy: bool = False
) -> Identity:
    """Returns the identity for a process that starts in the directory.

    - `same_files`: the directory is not a copy of what the previous process wrote.
    - `lost_copy`: the machine rebooted before that copy was synced.
    """
    return replace(
        former,
        boot_id=boot_id,
        stopped_cleanly=False,
        whole_since=former.whole_since if _is_intact(former, boot_id) else 0,
        synced_whole_since=0 if lost_copy else former.synced_whole_since,
        copied=former.copied or not same_files,
        copy_synced=former.copy_synced and same_files,
    )


def _is_intact(former: Identity, boot_id: str) -> bool:
    """Returns whether no power failure can have removed unsynced data."""
    return former.stopped_cleanly or former.boot_id == boot_id != ""


def not_intact_reason(identity: Identity, record: BrokerDirectory | None) -> str:
    """Returns why the directory may lack data acknowledged under its broker id; empty: it lacks
    none.

    `record` is what the store has of the id's last registration; None: no broker that writes such a
    record has registered yet.

    Every registration writes a token to both, and so does every clean stop that ends one. A
    directory without the latest token is older, or another one. A copy with it was made since then,
    and is trusted only after a clean stop: any other may end below what was acknowledged later."""
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
        return (
            "it was copied or restored without a clean stop before, or its machine rebooted and "
            "its file system reports no birth times, so that this cannot be ruled out"
        )
    return ""


def may_end_registration(
    identity: Identity, record: BrokerDirectory | None, registered_uuid: str
) -> bool:
    """Returns whether the present registration is surely that of a dead process in this directory.

    Only one process at a time can lock a directory. With a copy, or after a reboot, the other
    process may be alive elsewhere: its lease has to expire. `registered_uuid` is the directory id
    in the registration."""
    if registered_uuid != identity.directory_id or identity.copied:
        return False
    if record is None:
        return True
    return (
        record.directory_id == identity.directory_id
        and record.registration_token in identity.registration_tokens
        and record.boot_id == identity.boot_id != ""
    )


def previous_end_of(former: Identity, boot_id: str) -> str:
    """Returns how the previous process ended."""
    if former.stopped_cleanly:
        return STOPPED
    known = former.boot_id != "" and boot_id != ""
    return REBOOTED if known and former.boot_id != boot_id else CRASHED


def is_unused(disk: Disk, path: PurePath, identity: Identity) -> bool:
    """Returns whether no broker has registered with the directory and it holds nothing.

    Then a start was rejected right after the directory was created, and another broker may use
    it."""
    return not identity.has_registered and not disk.list_names(path / REPLICAS)


def stored_identity(disk: Disk, path: PurePath) -> Identity | None:
    """Returns the identity for reports; None if the directory is new or its file is unreadable.

    `store_revision` is the highest one that the directory remembers."""
    try:
        found = read_checked(disk, path / IDENTITY_FILE, _KIND)
        if not found:
            return None
        identity = Identity.from_json(found)
        noted = int(_read_noted_revision(disk, path).get("revision", 0))
    except (DamagedFileError, OSError, TypeError, ValueError):
        return None
    return replace(identity, store_revision=max(identity.store_revision, noted))


def _read_identity(disk: Disk, path: PurePath, levels: LevelRange) -> Any:
    """Returns the content of `broker.json`; None: there is none. Raises `DataDirectoryError`."""
    try:
        found = read_checked(disk, path / IDENTITY_FILE, _KIND)
    except LaterFileError as error:
        raise DataDirectoryError(f"{error}; start that one", RejectionCause.VERSION) from error
    except DamagedFileError as error:
        raise DataDirectoryError(
            f"{error}; restore the file, or move the directory away to start empty, with "
            "--replace-directory and the id that the next rejection names"
        ) from error
    level = found.get("feature_level", FIRST_LEVEL) if found else levels.newest
    if not levels.supports(level):
        reason = unsupported(f"data directory {path}", level, levels, installed_version())
        raise DataDirectoryError(f"{reason}; nothing was changed", RejectionCause.VERSION)
    return found


class DataDirectory:
    """Stores every change of the identity before anything depends on it."""

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
        # A previous process may have failed to sync this copy.
        self._rewrites_copy = False
        # A registration of this process has been confirmed.
        self._has_registered = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: PurePath,
        *,
        broker_id: int,
        boot_id: str,
        rng: random.Random,
        levels: LevelRange = SUPPORTED,
    ) -> DataDirectory:
        """Opens the directory for a new process. Raises `DataDirectoryError` and OSError.

        `levels`: those of the release. A directory of another one stays as it is."""
        disk.make_directory(path)
        found = _read_identity(disk, path, levels)
        previous_end, is_unfinished = "", False
        noted = _read_noted_revision(disk, path)
        if found is None:
            # A parent directory that only its owner may read was there before.
            with suppress(PermissionError):
                disk.sync_directory(path.parent)
            # Another program put replicas without an identity there.
            copied = bool(disk.list_names(path / REPLICAS))
            identity = Identity(broker_id, _new_uuid(rng), boot_id=boot_id, copied=copied)
        else:
            stored = Identity.from_json(found)
            previous_end = previous_end_of(stored, boot_id)
            same_boot = stored.boot_id == boot_id != ""
            named = {IDENTITY_FILE: found.get("file"), REVISION_FILE: noted.get("file")}
            # A copy by hard links has the same files in other directories.
            named |= found.get("directories", {})
            same_files = are_same_files(disk, path, named, same_boot=same_boot)
            is_unfinished = (stored.copied and not stored.copy_synced) and may_name_itself(
                disk, path / IDENTITY_FILE, found.get("file"), same_boot=same_boot
            )
            lost_copy = is_unfinished and not _is_intact(stored, boot_id)
            if lost_copy:
                # Before the identity names this boot as the one in which the copy was made.
                disk.remove(path / RECOVERY_POINTS)
                disk.sync_directory(path)
            identity = next_incarnation(stored, boot_id, same_files=same_files, lost_copy=lost_copy)
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
        if not disk.file_id(path / IDENTITY_FILE).birth_ns:
            _log.warning(
                "birth_times_missing",
                data_dir=str(path),
                effect="a restore over this directory may go undetected within one boot of the "
                "machine; after a reboot without a clean stop the directory counts as a copy",
                hint="use a file system that reports birth times (`stat -c %w FILE`)",
            )
        return directory

    @property
    def lacks_identity(self) -> bool:
        """Whether it holds replicas that existed before its `broker.json`."""
        has_replicas = bool(self._disk.list_names(self.path / REPLICAS))
        return has_replicas and not self.identity.has_registered

    def join_cluster(self, cluster_id: str | None, name: str = "") -> None:
        """Records the cluster that the metadata store holds under the configured `name`.

        `cluster_id` None: the store holds none. Raises `DataDirectoryError` if the data is of
        another cluster."""
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

    def note_level(self, level: int) -> None:
        """Records that this broker runs at a feature level. Raises OSError."""
        if level > self.identity.feature_level:
            self._update(feature_level=level)

    async def sync_copy(self, run_blocking: RunBlocking) -> None:
        """Syncs a copied directory, because the program that copied it need not have synced it.

        Does nothing for any other directory. Raises OSError."""
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

    def withdraw_disproved_claims(self, record: BrokerDirectory | None) -> str:
        """Withdraws the claims to be intact if the store's record of the broker id disproves them.

        Returns the reason; empty if the claims hold. Raises OSError."""
        reason = not_intact_reason(self.identity, record)
        return self.mark_not_intact(reason) if reason else ""

    def mark_not_intact(self, reason: str) -> str:
        """Counts the directory as intact only since its next registration. Returns `reason`.

        Raises OSError."""
        if self.identity.whole_since or self.identity.synced_whole_since:
            changed = replace(self.identity, whole_since=0, synced_whole_since=0)
            self._write(changed)
            self.identity = changed
        return reason

    def begin_registration(self, record: BrokerDirectory | None) -> str:
        """Returns the token of the next registration, after it is on disk.

        The store may commit it without this process ever receiving the answer. A token that was
        never registered is used again, because an unfinished transaction may still register it.
        Raises OSError."""
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
        """Records a registration: from now on all that is written is accounted for.

        Raises OSError: the file then claims less than is true."""
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
        """Records a clean stop. After a registration it gets a token, which the caller stores in
        the metadata store, too.

        Without a registration the token of the earlier stop stays."""
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
        """Stores the revision now and then, so that an older store is detected after a crash, too.

        Not synced: a power failure takes back a few seconds. Raises OSError."""
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
        """Raises `DataDirectoryError` if the metadata store is older than what this broker has
        acted on.

        A store restored from a backup may count valid replicas as strays (rule
        `other-or-older-store-rejected`)."""
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
        present = (".", REPLICAS) if self._disk.list_names(self.path / REPLICAS) else (".",)
        directories = {name: self._disk.file_id(self.path / name) for name in present}
        write_checked_with_id(
            self._disk,
            self._path,
            _KIND,
            lambda file: {**asdict(identity), "file": file, "directories": directories},
            sync=True,
        )


def _new_uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _read_noted_revision(disk: Disk, path: PurePath) -> dict[str, Any]:
    try:
        noted = read_checked(disk, path / REVISION_FILE, _REVISION_KIND)
    except DamagedFileError:
        return {}  # torn by a power failure; the identity has an older one
    # Older releases wrote only the number.
    return noted if isinstance(noted, dict) else {"revision": noted or 0}
