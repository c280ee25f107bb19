"""Binds a broker id to one data directory, in the store (docs/adr/0001).

One transaction creates a registration and writes the record of its directory. It requires the
record to be unchanged since it was read. So a directory that registers knows which directory
registered last under its id: itself, a copy of it, or another one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tidelog_broker.storage.data_directory import (
    IDENTITY_FILE,
    DataDirectory,
    DataDirectoryError,
    may_end_registration,
)
from tidelog_runtime.metadata.broker_directories import (
    BrokerDirectory,
    RejectionCause,
    decode_broker_directory,
    decode_rejected_start,
    encode_broker_directory,
)
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import BrokerRegistration, decode_broker
from tidelog_runtime.metadata.store import (
    Change,
    CreateRevision,
    Delete,
    Guard,
    KeyValue,
    MetadataStore,
    ModRevision,
    Put,
    Transaction,
)


class BrokerIdInUseError(DataDirectoryError):
    """The broker id belongs to another data directory."""

    def __init__(self, message: str) -> None:
        super().__init__(message, RejectionCause.BROKER_ID_IN_USE)


class StoredKeys(NamedTuple):
    """The keys of a broker id in the store.

    Each is read separately: only a transaction that compares all of them may rely on them.
    """

    record: KeyValue | None
    registration: KeyValue | None
    rejected: KeyValue | None = None

    @property
    def directory(self) -> BrokerDirectory | None:
        return None if self.record is None else decode_broker_directory(self.record.value)

    @property
    def registered(self) -> BrokerRegistration | None:
        return None if self.registration is None else decode_broker(self.registration.value)


class DirectoryBinding:
    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        broker_id: int,
        directory: DataDirectory,
        host: str,
        replaces: str = "",
    ) -> None:
        """`host` is the name of this machine, for people.

        `replaces` is the data directory that an operator has given up and whose place this one may
        take; empty: none.
        """
        self._replaces = replaces
        self._store = store
        self._keys = keys
        self._broker_id = broker_id
        self._directory = directory
        self._host = host

    async def read(self) -> StoredKeys:
        """Reads the keys of the broker id. Raises `StoreError`."""
        return StoredKeys(
            await self._store.get(self._keys.directory(self._broker_id)),
            await self._store.get(self._keys.broker(self._broker_id)),
            await self._store.get(self._keys.rejected_start(self._broker_id)),
        )

    def require_ownership(self, held: StoredKeys) -> str:
        """Checks that the broker id belongs to this directory.

        Returns why the directory counts as intact only since its next registration, once that is on
        the disk; empty: it lost nothing. Raises `BrokerIdInUseError` if the id belongs to another
        directory that was not given up, and OSError.
        """
        record = held.directory
        registered = held.registered
        own = self._directory.identity.directory_id
        if record is None and registered is not None and registered.node_uuid != own:
            # A release that keeps no directory records registered it.
            record = BrokerDirectory(registered.node_uuid, "", address=registered.address)
        if record is None or record.directory_id == own:
            if registered is not None and registered.node_uuid != own:
                return self._directory.mark_not_intact(
                    f"data directory {registered.node_uuid} was registered under its id by a "
                    "release that binds no ids"
                )
            return self._directory.withdraw_disproved_claims(record)
        if self._replaces != record.directory_id:
            raise BrokerIdInUseError(self._in_use_error(record))
        return self._directory.withdraw_disproved_claims(record)

    def _in_use_error(self, record: BrokerDirectory) -> str:
        broker_id, directory = self._broker_id, self._directory
        if (record.data_dir, record.host) == (str(directory.path), self._host):
            return self._changed_directory_error(record)
        return (
            f"broker id {broker_id} belongs to data directory {record.directory_id} "
            f"({record.place}), and this process has {directory.identity.directory_id} "
            f"({directory.path} on {self._host or 'this machine'}); start broker {broker_id} with "
            "that directory, or give this process a broker_id and a data_dir of its own; if that "
            f"directory is lost for good, start this process with --replace-directory "
            f"{record.directory_id}"
        )

    def _changed_directory_error(self, record: BrokerDirectory) -> str:
        """Returns the error for a known place that holds another directory than before."""
        directory = self._directory
        found = directory.identity.directory_id
        is_here = f"{directory.path} is not the directory {record.directory_id} that broker"
        is_here += f" {self._broker_id} last registered with, but {found}: "
        found_how = (
            f"it holds replicas without the {IDENTITY_FILE} that names them; restore that file"
            if directory.lacks_identity
            else "its disk may not be mounted; mount it, or put the directory back"
        )
        return (
            f"{is_here}{found_how}; if that directory is lost for good, start this process with "
            f"--replace-directory {record.directory_id}"
        )

    async def end_previous(self, held: StoredKeys) -> bool:
        """Deletes the registration of the previous incarnation of this directory.

        Without that it would count as alive until its lease ends. Returns whether no registration
        is left, as far as was read. False: the registered process may be alive, or another change
        came first. Raises `StoreError`.
        """
        if held.registration is None:
            return True
        registered = decode_broker(held.registration.value)
        identity = self._directory.identity
        if not may_end_registration(identity, held.directory, registered.node_uuid):
            return False
        key = self._keys.broker(self._broker_id)
        result = await self._store.transact(
            Transaction(
                # A copy may have registered between the two reads. The registration is then its
                # own, though the record that was read does not name it.
                guards=[
                    CreateRevision(key, held.registration.create_revision),
                    self._record_unchanged(held),
                ],
                changes=[Delete(key)],
            )
        )
        return result.succeeded

    def _record_unchanged(self, held: StoredKeys) -> Guard:
        revision = 0 if held.record is None else held.record.mod_revision
        return ModRevision(self._keys.directory(self._broker_id), revision)

    def registration_parts(
        self, held: StoredKeys, address: str, not_intact_reason: str
    ) -> tuple[list[Guard], list[Change]]:
        """Returns the guards and changes of the transaction that creates the registration.

        Its token is on the disk by then. Raises OSError.
        """
        key = self._keys.directory(self._broker_id)
        directory = self._directory
        token = directory.begin_registration(held.directory)
        record = BrokerDirectory(
            directory.identity.directory_id,
            token,
            "",
            address,
            self._host,
            str(directory.path),
            directory.identity.boot_id,
            not_intact_reason,
        )
        changes: list[Change] = [Put(key, encode_broker_directory(record))]
        if held.rejected is None or self.supersedes(held.rejected, address):
            changes.append(Delete(self._keys.rejected_start(self._broker_id)))
        return [self._record_unchanged(held)], changes

    def supersedes(self, rejected: KeyValue | None, address: str) -> bool:
        """Whether this process, at `address`, is a later start than the rejected one.

        It does not supersede the rejection of another process, which may still be trying.
        """
        directory_id = self._directory.identity.directory_id
        return rejected is not None and not _is_of_another_process(rejected, directory_id, address)

    async def stopped_cleanly(self, broker_epoch: int) -> None:
        """Records the clean stop of the directory in the store.

        By the record an older copy of the directory is detected, and a copy made after the stop is
        accepted. Has no effect if another registration followed. Raises `StoreError`.
        """
        key = self._keys.directory(self._broker_id)
        record = await self._store.get(key)
        if record is None or record.mod_revision != broker_epoch:
            return
        token = self._directory.identity.clean_stop_token
        stopped = replace(decode_broker_directory(record.value), clean_stop_token=token)
        await self._store.transact(
            Transaction(
                guards=[ModRevision(key, broker_epoch)],
                changes=[Put(key, encode_broker_directory(stopped))],
            )
        )


def _is_of_another_process(rejected: KeyValue, directory_id: str, address: str) -> bool:
    try:
        start = decode_rejected_start(rejected.value)
    except (KeyError, TypeError, ValueError):
        return False
    if start.cause is RejectionCause.BROKER_ID_IN_USE:
        return start.directory_id != directory_id
    # A copy has the same directory id.
    return start.cause is RejectionCause.WAITS_FOR_LEASE and (
        (start.directory_id, start.address) != (directory_id, address)
    )
