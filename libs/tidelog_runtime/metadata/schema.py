"""Keys and values of the metadata store ("Metadata" in docs/internals/protocol.md).

Values are JSON, so that `etcdctl get --prefix /tidelog/` is readable."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from tidelog.feature_levels import FIRST_LEVEL, UNREPORTED, LevelRange
from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog.state_changes.event import NO_CHANGE, Cause, Change
from tidelog_runtime.metadata.broker_directories import known_fields

# The broker epoch of a member that is known to have lost data. No incarnation has this epoch, so
# such a member does not lead and is not elected as clean.
NOT_WHOLE = 0
# Fields that were added later, with the values that mean "not set".
_LATER_FIELDS: Mapping[str, object] = {
    "crashed_at_ms": 0,
    "crashes": 0,
    "crashing_since_ms": 0,
    "external_address": "",
    "first_leader_epoch": 0,
    "host": "",
    "levels": UNREPORTED,
    "version": "",
}
# Size of the caches between states of partitions and their JSON form.
STATES_REMEMBERED = 2_048
RUNNING = "running"
STOPPING = "stopping"


class Member(NamedTuple):
    """A replica in the incarnation of its broker in which it was admitted. `broker_epoch` is the
    creation revision of that broker's registration (KIP-903), or NOT_WHOLE."""

    broker_id: int
    broker_epoch: int


class Moving(NamedTuple):
    """The move of a partition from its `original` to its `target` replicas, both in order of
    preference. `operation`: the id of the operation that it belongs to."""

    operation: str
    original: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(b for b in self.target if b not in self.original)

    @property
    def leaving(self) -> tuple[int, ...]:
        return tuple(b for b in self.original if b not in self.target)

    @property
    def replicas(self) -> tuple[int, ...]:
        """All replicas while the move lasts."""
        return (*self.original, *self.adding)


Fields: TypeAlias = (
    "tuple[str, tuple[int, ...], int, int, int, tuple[Member, ...], tuple[Member, ...], int, int, "
    "Moving | None, int, int, Change]"
)


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """One partition: value of `…/<topic>/<p>/leaderAndISR`. Every compare-and-swap names the
    modification revision of this key. Invariants:

    - The leader is in the ISR, or is NO_LEADER. Only in the latter case may the ISR be empty.
    - No broker is in both ISR and eligible set; both are subsets of `replicas`.
    - The eligible set is empty while the ISR has at least `min_isr` members.
    - During a move, `replicas` are those of the move."""

    topic_id: str
    replicas: tuple[int, ...]  # the first is the preferred leader
    controller_epoch: int
    leader: int
    leader_epoch: int  # grows with every election and resignation, never otherwise
    isr: tuple[Member, ...]
    eligible: tuple[Member, ...]
    min_isr: int
    unclean_leader_epoch: int = NO_EPOCH
    moving: Moving | None = None
    # Records that the unclean election truncated, as far as replicas were known to hold them;
    # NOT_KNOWN also if there was none. Reported only; no decision depends on it.
    unclean_lost_records: int = field(default=NOT_KNOWN, compare=False)
    # Wall clock of the controller when it wrote the unclean election; 0: there was none, or a
    # release without this field has written the key since. Reported only.
    unclean_elected_at_ms: int = field(default=0, compare=False)
    # The change that led to this state. Reported only; no decision depends on it.
    change: Change = field(default=NO_CHANGE, compare=False)

    @property
    def adding(self) -> tuple[int, ...]:
        return self.moving.adding if self.moving else ()

    @property
    def leaving(self) -> tuple[int, ...]:
        return self.moving.leaving if self.moving else ()

    @property
    def settled_replicas(self) -> tuple[int, ...]:
        """Replicas that are expected in the ISR: the original ones until a move has switched."""
        return self.moving.original if self.moving else self.replicas

    @property
    def isr_ids(self) -> frozenset[int]:
        return frozenset([broker_id for broker_id, _ in self.isr])

    @property
    def leader_broker_epoch(self) -> int:
        """The incarnation of the broker that may lead in this epoch; 0: there is no leader."""
        for broker_id, broker_epoch in self.isr:
            if broker_id == self.leader:
                return broker_epoch
        return 0

    @property
    def fields(self) -> Fields:
        """All fields in order. Unlike `==`, comparing them covers the fields that are only
        reported."""
        return (
            self.topic_id,
            self.replicas,
            self.controller_epoch,
            self.leader,
            self.leader_epoch,
            self.isr,
            self.eligible,
            self.min_isr,
            self.unclean_leader_epoch,
            self.moving,
            self.unclean_lost_records,
            self.unclean_elected_at_ms,
            self.change,
        )

    def with_isr(self, isr: Iterable[Member]) -> LeaderAndIsr:
        """Returns the state with another ISR and the resulting eligible set. A replica that
        leaves an ISR which falls below min ISR has every committed record, because
        from then on nothing is committed (KIP-966; rule `every-write-sets-eligible-set`)."""
        members = tuple(sorted(isr))
        eligible: tuple[Member, ...] = ()
        if len(members) < self.min_isr:
            present = {member.broker_id for member in members}
            former = {m.broker_id: m for m in (*self.eligible, *self.isr)}
            eligible = tuple(sorted(m for m in former.values() if m.broker_id not in present))
        return self._with(self.leader, self.leader_epoch, self.controller_epoch, members, eligible)

    def led_by(self, leader: int, isr: Iterable[Member], controller_epoch: int) -> LeaderAndIsr:
        """The same with this ISR, in a new epoch of this leader."""
        after = self.with_isr(isr)
        leader_epoch = after.leader_epoch + 1
        return after._with(leader, leader_epoch, controller_epoch, after.isr, after.eligible)

    def with_min_isr(self, min_isr: int) -> LeaderAndIsr:
        """Returns the state with another min ISR and an empty eligible set. Replicas that left the
        ISR held every committed record by the old value; by the new one, more records may have been
        committed since (rule `every-write-sets-eligible-set`)."""
        return self if min_isr == self.min_isr else replace(self, min_isr=min_isr, eligible=())

    def with_change(self, change: Change) -> LeaderAndIsr:
        """Returns the state as decided by this change."""
        return LeaderAndIsr(*self.fields[:-1], change)

    def resigned(self, broker_id: int) -> LeaderAndIsr:
        """Returns the state after a replica has found that it lost data (rule
        `damaged-replica-resigns-first`): it leaves the ISR and cannot be elected as clean. A
        leader, or a replica of a partition without leader, stays as a member of no incarnation. The
        controller then sees that the leader is invalid, and a recovery knows which replicas to wait
        for. If another replica leads, it gets a new epoch, even if the resigned one is no member.
        Otherwise the leader's knowledge of this replica, a fetch in flight, or a pending ISR change
        would count the replica for the data that it had before."""

        def marked(members: Iterable[Member]) -> tuple[Member, ...]:
            return tuple(
                Member(b, NOT_WHOLE) if b == broker_id else Member(b, e) for b, e in members
            )

        if self.leader in (broker_id, NO_LEADER):
            return replace(self, isr=marked(self.isr), eligible=marked(self.eligible))
        rest = self.with_isr(member for member in self.isr if member.broker_id != broker_id)
        return replace(rest, eligible=marked(rest.eligible), leader_epoch=self.leader_epoch + 1)

    def _with(
        self,
        leader: int,
        leader_epoch: int,
        controller_epoch: int,
        isr: tuple[Member, ...],
        eligible: tuple[Member, ...],
    ) -> LeaderAndIsr:
        """Three times as fast as `dataclasses.replace`, for elections of 10,000 leaders."""
        return LeaderAndIsr(
            self.topic_id,
            self.replicas,
            controller_epoch,
            leader,
            leader_epoch,
            isr,
            eligible,
            self.min_isr,
            self.unclean_leader_epoch,
            self.moving,
            self.unclean_lost_records,
            self.unclean_elected_at_ms,
            self.change,
        )


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """Value of `brokers/topics/<topic>`.

    - `trace_id`, here and in intents: of the request's W3C trace context, for the controller.
    - `operation_id`: id of the request that created the topic; empty: none.
    - `shrunk`: partitions were removed; a broker that was away may hold replicas of removed
      ones.
    - `asked`: digest of the request that created the topic, to recognize a repeated one.
    - `first_leader_epoch`: of added partitions. It exceeds all epochs of removed ones, because
      processes that know a removed one ignore older epochs. Not in the JSON if none were
      removed."""

    topic_id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)
    trace_id: str = ""
    operation_id: str = ""
    shrunk: bool = False
    asked: str = ""
    first_leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """Value of `brokers/ids/<id>`, under the broker's lease. It is only created, never changed; its
    creation revision is the broker epoch.

    - `whole_since`: oldest broker epoch since which the replicas lost nothing; 0: this one.
    - `synced_whole_since`: the same for data that is fsynced before it counts.
    - `external_address`: for clients outside the brokers' network; not in the JSON if empty.
    - `version`, `levels`: of the process; not in the JSON of releases without feature levels."""

    address: str
    rack: str
    node_uuid: str
    state: str
    whole_since: int
    synced_whole_since: int
    external_address: str = ""
    version: str = ""
    levels: LevelRange = UNREPORTED


class Departure(NamedTuple):
    """Value of `brokers/departures/<id>`: how the broker's last ended incarnation ended, as the
    active controller saw it. Kept after the broker returns, until its next incarnation ends.
    Reported only. `at_ms`: wall clock at which the end was noticed.

    `crashes`, `crashing_since_ms`, `crashed_at_ms`: the broker's latest series of crashes."""

    broker_epoch: int
    cause: Cause
    at_ms: int
    address: str
    external_address: str = ""
    crashes: int = 0
    crashing_since_ms: int = 0
    crashed_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ControllerEntry:
    """Value of `controller`, under the controller's lease."""

    controller_id: int
    address: str
    external_address: str = ""


@dataclass(frozen=True, slots=True)
class ControllerProcess:
    """Value of `controllers/ids/<id>`, under a lease that outlives controller terms: a live
    controller, active or not. No decision about partitions depends on it. A later process with the
    same address and host overwrites it.

    - `started_at_ms`: wall clock.
    - `host`: of its machine or container; empty: not known.
    - `version`, `levels`: as in `BrokerRegistration`."""

    address: str
    started_at_ms: int
    external_address: str = ""
    host: str = ""
    version: str = ""
    levels: LevelRange = UNREPORTED

    def is_of_place(self, other: ControllerProcess) -> bool:
        """Whether `other` is an earlier or a later process of the same place. Two processes cannot
        listen there at once."""
        hosts = {host for host in (self.host, other.host) if host}
        return self.address == other.address and len(hosts) < 2


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """Value of `cluster`. The first service to start creates it; afterwards only
    `format_version` changes: the feature level, under the name of release 0.1.0, which rejects
    levels above 1 by it."""

    cluster_id: str
    format_version: int = FIRST_LEVEL


# Below this rate, a batch would take too long.
MIN_BYTES_PER_SECOND = 1_024


class Throttle(NamedTuple):
    """Value of `admin/throttles`: the bytes per second that each broker may send to replicas which
    moves add, and receive as such a replica; None: unlimited."""

    bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class RecoveryConsent:
    """Value of `admin/recoveries/<topic>/<p>`: consent to one unclean election. It ends with the
    election of a leader."""

    topic_id: str
    from_live_replicas: bool
    trace_id: str = ""
    # The replica to elect, whatever is lost by it; NO_LEADER: the best surviving one.
    broker_id: int = NO_LEADER


# Shared, because `json.dumps` makes a new encoder for each call.
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def _dump(value: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(value).encode()


def encode_leader_and_isr(state: LeaderAndIsr) -> bytes:
    return _encode_fields(state.fields)


# A state does not name its partition. If one change elects leaders for thousands of partitions,
# their states differ only by the order of replicas, and each is encoded and decoded once.
@lru_cache(maxsize=STATES_REMEMBERED)
def _encode_fields(fields: Fields) -> bytes:
    state = LeaderAndIsr(*fields)
    return _dump(
        {
            "topic_id": state.topic_id,
            "replicas": state.replicas,
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": {str(m.broker_id): m.broker_epoch for m in state.isr},
            "eligible": {str(m.broker_id): m.broker_epoch for m in state.eligible},
            "min_isr": state.min_isr,
            "unclean_leader_epoch": state.unclean_leader_epoch,
            "moving": state.moving._asdict() if state.moving else None,
            "unclean_lost_records": state.unclean_lost_records,
            "change": {**state.change._asdict(), "cause": state.change.cause.value},
            **_election_time(state),
        }
    )


def _election_time(state: LeaderAndIsr) -> dict[str, int]:
    """The field is omitted if it is 0, as in keys of releases without it."""
    elected_at_ms = state.unclean_elected_at_ms
    return {"unclean_elected_at_ms": elected_at_ms} if elected_at_ms else {}


@lru_cache(maxsize=STATES_REMEMBERED)
def decode_leader_and_isr(value: bytes) -> LeaderAndIsr:
    raw = json.loads(value)
    return LeaderAndIsr(
        topic_id=raw["topic_id"],
        replicas=tuple(raw["replicas"]),
        controller_epoch=raw["controller_epoch"],
        leader=raw["leader"],
        leader_epoch=raw["leader_epoch"],
        isr=tuple(sorted(Member(int(b), e) for b, e in raw["isr"].items())),
        eligible=tuple(sorted(Member(int(b), e) for b, e in raw["eligible"].items())),
        min_isr=raw["min_isr"],
        unclean_leader_epoch=raw["unclean_leader_epoch"],
        # Keys of earlier releases lack these.
        moving=_decode_moving(raw.get("moving")),
        unclean_lost_records=raw.get("unclean_lost_records", NOT_KNOWN),
        unclean_elected_at_ms=raw.get("unclean_elected_at_ms", 0),
        change=_decode_change(raw.get("change", {})),
    )


def _decode_moving(raw: Mapping[str, Any] | None) -> Moving | None:
    if raw is None:
        return None
    moving = Moving(raw["operation"], tuple(raw["original"]), tuple(raw["target"]))
    if not (moving.original and moving.target):
        raise ValueError("a move without original or target replicas")
    return moving


def _decode_change(raw: Mapping[str, Any]) -> Change:
    return Change(**{**raw, "cause": Cause.parse(raw.get("cause", ""))})


def encode_departure(departure: Departure) -> bytes:
    fields = {**departure._asdict(), "cause": departure.cause.value}
    return _dump(_without_later_fields(fields))


def decode_departure(value: bytes) -> Departure:
    raw = json.loads(value)
    known = {name: raw[name] for name in Departure._fields if name in raw}
    return Departure(**{**known, "cause": Cause.parse(raw["cause"])})


def encode(
    value: TopicEntry
    | BrokerRegistration
    | ControllerEntry
    | ControllerProcess
    | ClusterEntry
    | RecoveryConsent,
) -> bytes:
    return _dump(_without_later_fields(asdict(value)))


def _without_later_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Omits later fields that are not set, so that releases without them can read the key."""
    return {
        name: value
        for name, value in fields.items()
        if name not in _LATER_FIELDS or value != _LATER_FIELDS[name]
    }


def decode_topic(value: bytes) -> TopicEntry:
    return TopicEntry(**known_fields(TopicEntry, json.loads(value)))


def decode_broker(value: bytes) -> BrokerRegistration:
    return BrokerRegistration(**_with_levels(known_fields(BrokerRegistration, json.loads(value))))


def decode_controller(value: bytes) -> ControllerEntry:
    return ControllerEntry(**known_fields(ControllerEntry, json.loads(value)))


def decode_controller_process(value: bytes) -> ControllerProcess:
    return ControllerProcess(**_with_levels(known_fields(ControllerProcess, json.loads(value))))


def _with_levels(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "levels": LevelRange(*raw["levels"])} if "levels" in raw else raw


def decode_cluster(value: bytes) -> ClusterEntry:
    return ClusterEntry(**known_fields(ClusterEntry, json.loads(value)))


def encode_throttle(throttle: Throttle) -> bytes:
    return _dump(throttle._asdict())


def decode_throttle(value: bytes) -> Throttle:
    """Raises ValueError for a bound that is too low or not a number."""
    rate = json.loads(value)["bytes_per_second"]
    if rate is not None and (not isinstance(rate, int) or rate < MIN_BYTES_PER_SECOND):
        raise ValueError(f"bytes_per_second is {rate!r}; at least {MIN_BYTES_PER_SECOND} or null")
    return Throttle(rate)


def decode_recovery_consent(value: bytes) -> RecoveryConsent:
    return RecoveryConsent(**known_fields(RecoveryConsent, json.loads(value)))


def unassigned(topic: TopicEntry, replicas: tuple[int, ...], min_isr: int) -> LeaderAndIsr:
    """A partition that has replicas but no leader yet."""
    return LeaderAndIsr(topic.topic_id, replicas, 0, NO_LEADER, NO_EPOCH, (), (), min_isr)
