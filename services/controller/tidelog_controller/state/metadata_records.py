"""The controller's knowledge of the store, and changes of it, as plain values."""

from __future__ import annotations

from typing import NamedTuple, Self, TypeVar

from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog_controller.policies.electability import ElectionRules
from tidelog_runtime.metadata.operations import (
    BrokerMark,
    OperationEntry,
    decode_mark,
)
from tidelog_runtime.metadata.schema import (
    RUNNING,
    BrokerRegistration,
    Departure,
    LeaderAndIsr,
    RecoveryConsent,
    TopicEntry,
)
from tidelog_runtime.metadata.store import KeyValue
from tidelog_runtime.metadata.topic_intents import (
    PartitionsAddition,
    PartitionsRemoval,
)
from tidelog_runtime.topic_config import TopicConfig

_Key = TypeVar("_Key")
_Inner = TypeVar("_Inner")
_Held = TypeVar("_Held")


class Broker(NamedTuple):
    broker_id: int
    registration: BrokerRegistration
    broker_epoch: int

    @property
    def running(self) -> bool:
        return self.registration.state == RUNNING


class Topic(NamedTuple):
    """A topic as stored.

    - `revision`: the modification revision.
    - `rules`: the election rules that `config` sets.
    """

    entry: TopicEntry
    create_revision: int
    revision: int
    config: TopicConfig
    rules: ElectionRules

    @classmethod
    def of(cls, entry: TopicEntry, create_revision: int, revision: int) -> Self:
        """Raises `ValueError` if the configuration is invalid."""
        try:
            config = TopicConfig.parse_stored(entry.config)
        except TidelogError as error:
            raise ValueError(error.message) from error
        rules = ElectionRules(
            synced=config.durability == "synced",
            recovery=config.recovery,
            unclean_leader_election=config.unclean_leader_election,
        )
        return cls(entry, create_revision, revision, config, rules)

    @property
    def min_isr(self) -> int:
        """The min ISR of a new partition."""
        return self.config.min_isr(self.entry.replication_factor)


class Partition(NamedTuple):
    """`revision`: the modification revision, which a write names as the expected one."""

    state: LeaderAndIsr
    revision: int


class Deletion(NamedTuple):
    topic_id: str
    revision: int
    trace_id: str = ""


class Consent(NamedTuple):
    """`revision`: the modification revision."""

    entry: RecoveryConsent
    revision: int


class Addition(NamedTuple):
    entry: PartitionsAddition
    revision: int


class Removal(NamedTuple):
    entry: PartitionsRemoval
    revision: int


class BrokerChanged(NamedTuple):
    broker_id: int
    old: Broker | None
    new: Broker | None


class DepartureChanged(NamedTuple):
    broker_id: int
    new: Departure | None


class TopicChanged(NamedTuple):
    topic: str
    old: Topic | None
    new: Topic | None


class PartitionChanged(NamedTuple):
    partition: TopicPartition
    old: Partition | None
    new: Partition | None


class DeletionChanged(NamedTuple):
    topic: str
    new: Deletion | None


class PartitionsIntentChanged(NamedTuple):
    topic: str
    old: Addition | Removal | None
    new: Addition | Removal | None


class ConsentChanged(NamedTuple):
    partition: TopicPartition
    new: Consent | None


class Mark(NamedTuple):
    """A mark of a broker. `revision`: the modification revision."""

    entry: BrokerMark
    revision: int


class ThrottleState(NamedTuple):
    """`revision`: the modification revision; 0: the throttle was never set."""

    bytes_per_second: int | None
    revision: int


UNTHROTTLED = ThrottleState(None, 0)


class OperationChanged(NamedTuple):
    operation_id: str
    old: OperationEntry | None
    new: OperationEntry | None


class MaintenanceChanged(NamedTuple):
    broker_id: int
    new: Mark | None


class Malformed(NamedTuple):
    """A value that its key does not allow.

    The key's last valid value stays in force, and the controller does not write the key until it is
    repaired.
    """

    key: str
    problem: str


Absorbed = (
    BrokerChanged
    | DepartureChanged
    | TopicChanged
    | PartitionChanged
    | DeletionChanged
    | PartitionsIntentChanged
    | ConsentChanged
    | OperationChanged
    | MaintenanceChanged
    | Malformed
)


def layout_of(held: Partition | None) -> object:
    """The part of a partition's state that a plan of moves depends on."""
    return None if held is None else (held.state.topic_id, held.state.replicas, held.state.moving)


def absorb_mark(marks: dict[int, Mark], broker_id: int, value: KeyValue | None) -> None:
    new = Mark(decode_mark(value.value), value.mod_revision) if value is not None else None
    marks.pop(broker_id, None)
    if new is not None:
        marks[broker_id] = new


def own(maps: dict[_Key, dict[_Inner, _Held]], owned: set[_Key], key: _Key) -> dict[_Inner, _Held]:
    """Returns the map of this key, to be changed. `owned`: keys whose maps are not shared."""
    if key not in owned:
        owned.add(key)
        maps[key] = dict(maps.get(key, ()))
    return maps.setdefault(key, {})
