"""The data directory of each broker id, and the rejection of a broker's last start.

Both keys lie beside the registrations and outlive them:

- `brokers/directories/<id>` is written in the transaction that creates a registration. It binds
  the id to one data directory. The registration itself keeps the fields of the previous
  release, because that release's controllers reject unknown fields.
- `brokers/rejected_starts/<id>` is written by a process that cannot start, or that waits for
  another process of its id. A process that is configured for another broker or cluster than its
  data directory also writes the key under the cluster and id of that directory. A start that
  gets further than the rejected one before it replaces the value. The key ends with the next
  registration of the id, or after REJECTED_START_TTL_SECONDS.
"""

from __future__ import annotations

import enum
import json
from dataclasses import asdict, dataclass, fields
from typing import Any

REJECTED_START_TTL_SECONDS = 3_600


@dataclass(frozen=True, slots=True)
class BrokerDirectory:
    """Value of `brokers/directories/<id>`.

    - `directory_id`: of the data directory that registered last.
    - `registration_token`: chosen for that registration and written to the directory before it.
      A directory without this token is older than the registration.
    - `clean_stop_token`: chosen at the clean stop that ended the registration; empty: there was
      no clean stop. A directory without this token is older than the stop.
    - `address`, `host`, `data_dir`: the address of the registered process and the place of its
      data; for people.
    - `boot_id`: of the machine; empty: not known.
    - `not_intact_reason`: why the directory counts as intact only since that registration;
      empty: it counts as intact for longer, or it holds nothing older.
    """

    directory_id: str
    registration_token: str
    clean_stop_token: str = ""
    address: str = ""
    host: str = ""
    data_dir: str = ""
    boot_id: str = ""
    not_intact_reason: str = ""

    @property
    def place(self) -> str:
        """The directory, machine and address, in the form of messages."""
        where = self.data_dir if not self.host else f"{self.data_dir} on {self.host}"
        return f"{where}, last registered as {self.address}"


class RejectionCause(enum.Enum):
    """Why a broker's start is rejected, for programs; `RejectedStart.reason` is for people."""

    BROKER_ID_IN_USE = "broker_id_in_use"  # the id belongs to another data directory
    WAITS_FOR_LEASE = "waits_for_lease"  # another process of the id may be alive
    DATA_DIRECTORY = "data_directory"  # belongs to another broker or cluster, or is damaged
    DIRECTORY_IN_USE = "directory_in_use"  # another process of the machine has it open
    STORE = "store"  # the metadata store is wiped, or older than the data
    ADDRESS = "address"  # cannot listen on it
    DISK = "disk"  # an error of the operating system
    OTHER = "other"
    UNFINISHED = "unfinished"  # began after a rejected start, and has not registered
    FAULT = "fault"  # the process had started, and ended because one of its tasks failed
    VERSION = "version"  # its release does not support the level of the cluster or the directory

    @classmethod
    def parse(cls, value: str) -> RejectionCause:
        """Parses a cause; causes of later releases become OTHER."""
        try:
            return cls(value)
        except ValueError:
            return cls.OTHER


@dataclass(frozen=True, slots=True)
class RejectedStart:
    """Value of `brokers/rejected_starts/<id>`.

    - `reason`: what is wrong and what to do.
    - `at_ms`: wall clock of the rejected process.
    - `after_registration`: the id had no registration when this was written. The rejection is
      therefore newer than the end of the last registration, whatever the clocks say.
    - `address`, `host`, `data_dir`, `directory_id`: the place of the process.
    """

    cause: RejectionCause
    reason: str
    at_ms: int
    address: str = ""
    host: str = ""
    data_dir: str = ""
    directory_id: str = ""
    after_registration: bool = False


def encode_broker_directory(directory: BrokerDirectory) -> bytes:
    return _dump(asdict(directory))


def decode_broker_directory(value: bytes) -> BrokerDirectory:
    """Raises KeyError, TypeError or ValueError for a value that no broker writes."""
    return BrokerDirectory(**known_fields(BrokerDirectory, json.loads(value)))


def encode_rejected_start(rejected: RejectedStart) -> bytes:
    return _dump({**asdict(rejected), "cause": rejected.cause.value})


def decode_rejected_start(value: bytes) -> RejectedStart:
    """Raises KeyError, TypeError or ValueError for a value that no broker writes."""
    raw = json.loads(value)
    cause = RejectionCause.parse(raw["cause"])
    return RejectedStart(**{**known_fields(RejectedStart, raw), "cause": cause})


def known_fields(kind: type[Any], raw: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that this release knows; a later one may write more."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in raw.items() if name in names}


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
