"""The election of the active controller: the creator of the `controller` key, under a lease."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.feature_levels import SUPPORTED, LevelRange
from tidelog_controller.shell.controller_roster import ControllerRoster
from tidelog_controller.state.context import ControllerIdentity
from tidelog_runtime.metadata.cluster_id import level_guard
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    ControllerEntry,
    decode_controller,
    encode,
)
from tidelog_runtime.metadata.store import (
    CreateRevision,
    Lease,
    LeaseLostError,
    MetadataStore,
    ModRevision,
    Put,
    Snapshot,
    Transaction,
)


@dataclass(frozen=True, slots=True)
class Leadership:
    """A won election; valid until the lease ends or a guard on `identity.key_revision` fails."""

    identity: ControllerIdentity
    lease: Lease


class ControllerElection:
    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        entry: ControllerEntry,
        lease_ttl_seconds: int,
        roster: ControllerRoster,
        levels: LevelRange = SUPPORTED,
    ) -> None:
        """`levels`: the feature levels of the release."""
        self._levels = levels
        self._store = store
        self._keys = keys
        self._entry = entry
        self._lease_ttl_seconds = lease_ttl_seconds
        self._roster = roster
        # The active controller as last seen; None: there is none, or it is unknown.
        self.active: ControllerEntry | None = None

    async def campaign(self) -> Leadership:
        """Returns once the election is won. Raises `StoreUnavailableError`, and
        `UnsupportedLevelError` if the feature level was raised meanwhile."""
        while True:
            # The prefix includes the registrations of all controllers.
            snapshot = await self._store.snapshot(self._keys.controller)
            self._roster.load(snapshot)
            if self._keys.controller in snapshot.items:
                await self._until_vacant(snapshot)
            leadership = await self._try(snapshot)
            if leadership is not None:
                self.active = self._entry
                return leadership

    async def _until_vacant(self, snapshot: Snapshot) -> None:
        self.active = decode_controller(snapshot.items[self._keys.controller].value)
        try:
            async for changes in self._store.watch(snapshot):
                self._roster.apply(changes)
                for change in changes:
                    if change.key != self._keys.controller:
                        continue
                    if change.value is None:
                        return
                    self.active = decode_controller(change.value.value)
        finally:
            self.active = None

    async def _try(self, snapshot: Snapshot) -> Leadership | None:
        """None: another controller was faster, or the snapshot is out of date."""
        epoch_item = snapshot.items.get(self._keys.controller_epoch)
        epoch = int(epoch_item.value) + 1 if epoch_item else 1
        at_level = await level_guard(self._store, self._keys, self._levels)
        lease = await self._store.grant_lease(self._lease_ttl_seconds)
        won = False
        try:
            result = await self._store.transact(
                Transaction(
                    [
                        CreateRevision(self._keys.controller, 0),
                        at_level,
                        ModRevision(
                            self._keys.controller_epoch,
                            epoch_item.mod_revision if epoch_item else 0,
                        ),
                    ],
                    [
                        Put(self._keys.controller, encode(self._entry), lease.id),
                        Put(self._keys.controller_epoch, str(epoch).encode()),
                    ],
                )
            )
            won = result.succeeded
        except LeaseLostError:
            return None
        finally:
            # Also after a transaction without an answer: if it is applied after all, its key ends
            # with the lease.
            if not won:
                await lease.revoke()
        if not won:
            return None
        identity = ControllerIdentity(self._entry.controller_id, epoch, result.revision)
        return Leadership(identity, lease)
