"""Known broker directories, rejected starts and pressures, and their descriptions. No I/O.

Brokers and controllers share this module.
"""

from __future__ import annotations

from tidelog.inspection.resource_pressures import BrokerPressure
from tidelog.inspection.state_reports import RegisteredBroker
from tidelog.inspection.state_reports import RejectedStart as DescribedRejection
from tidelog_runtime.metadata.broker_directories import (
    BrokerDirectory,
    RejectedStart,
    RejectionCause,
    decode_broker_directory,
    decode_rejected_start,
)
from tidelog_runtime.metadata.keys import BrokerDirectoryKey, BrokerPressureKey, RejectedStartKey
from tidelog_runtime.metadata.schema import BrokerRegistration
from tidelog_runtime.metadata.store import KeyValue
from tidelog_runtime.pressure.records import Pressure, decode_pressures


class KnownDirectories:
    """Directories, rejected starts and pressures by broker id, as of the last applied change."""

    def __init__(self) -> None:
        self.directories: dict[int, BrokerDirectory] = {}
        self.rejected_starts: dict[int, RejectedStart] = {}
        self.pressures: dict[int, tuple[Pressure, ...]] = {}
        # Modification revisions of the last registration or clean stop of each id, and of its last
        # rejected start.
        self._ran_at: dict[int, int] = {}
        self._rejected_at: dict[int, int] = {}

    def apply(
        self, key: BrokerDirectoryKey | RejectedStartKey | BrokerPressureKey, value: KeyValue | None
    ) -> None:
        """Applies one change of the store.

        - `value`: None if the key was deleted. Raises KeyError, TypeError or ValueError if
          malformed.
        """
        if isinstance(key, BrokerDirectoryKey):
            self.directories.pop(key.broker_id, None)
            self._ran_at.pop(key.broker_id, None)
            if value is not None:
                self._ran_at[key.broker_id] = value.mod_revision
                self.directories[key.broker_id] = decode_broker_directory(value.value)
            return
        if isinstance(key, BrokerPressureKey):
            self.pressures.pop(key.broker_id, None)
            if value is not None:
                self.pressures[key.broker_id] = decode_pressures(value.value)
            return
        self.rejected_starts.pop(key.broker_id, None)
        if value is not None:
            self._rejected_at[key.broker_id] = value.mod_revision
            self.rejected_starts[key.broker_id] = decode_rejected_start(value.value)

    def describe(
        self, broker_id: int, broker_epoch: int, registration: BrokerRegistration
    ) -> RegisteredBroker:
        """Describes a registered broker.

        Leaves out a directory that the registration does not name: in that case, a release that
        stores no directories has registered the broker since.
        """
        known = self.directories.get(broker_id)
        if known is None or known.directory_id != registration.node_uuid:
            known = BrokerDirectory(registration.node_uuid, "")
        return RegisteredBroker(
            broker_id,
            broker_epoch,
            registration.address,
            registration.state,
            registration.rack,
            registration.whole_since or broker_epoch,
            registration.synced_whole_since or broker_epoch,
            known.directory_id,
            known.host,
            known.data_dir,
            known.not_intact_reason,
        )

    def described_rejections(self) -> tuple[DescribedRejection, ...]:
        """Returns the last rejected start of each broker, ordered by broker id.

        Leaves out processes that have run under an id of their own since: they claim the id no
        more, even if they are stopped now."""
        return tuple(
            DescribedRejection(
                broker_id,
                start.at_ms,
                start.cause.value,
                start.reason,
                start.address,
                start.host,
                start.data_dir,
                start.directory_id,
                self._rejected_at[broker_id] < self._ran_at.get(broker_id, 0),
                start.after_registration,
            )
            for broker_id, start in sorted(self.rejected_starts.items())
            if not self._has_run_under_another_id(broker_id, start)
        )

    def _has_run_under_another_id(self, broker_id: int, start: RejectedStart) -> bool:
        if start.cause is not RejectionCause.BROKER_ID_IN_USE:
            return False
        place = (start.host, start.data_dir)
        return any(
            known.directory_id == start.directory_id != ""
            or ((known.host, known.data_dir) == place and start.data_dir != "")
            for other, known in self.directories.items()
            if other != broker_id and self._ran_at[other] > self._rejected_at[broker_id]
        )

    def described_pressures(self) -> tuple[BrokerPressure, ...]:
        """Returns the pressures of all brokers, ordered by broker id."""
        return tuple(
            BrokerPressure(broker_id, *pressure)
            for broker_id, pressures in sorted(self.pressures.items())
            for pressure in pressures
        )
