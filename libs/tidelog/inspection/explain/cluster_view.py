"""One view of the cluster from many answers: which services are alive, partition keys, replicas."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.formatting import name_of_key
from tidelog.inspection.explain.links import Links
from tidelog.inspection.explain.observation import (
    BROKER,
    CONTROLLER,
    Listening,
    Observation,
    SilentService,
    name_of,
)
from tidelog.inspection.explain.reported_metadata import (
    Registry,
    active_controller,
    as_its_leader_reports,
    controller_pressures,
    is_lost_for_all,
    keys_of_leaders,
)
from tidelog.inspection.resource_pressures import DISK, BrokerPressure, silencing
from tidelog.inspection.state_reports import (
    NOT_KNOWN,
    BrokerBacklog,
    ControllerState,
    FollowerProgress,
    HeardBroker,
    LeaderState,
    PartitionKeyState,
    RejectedStart,
    ReplicaState,
    ServiceState,
)
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Cause

# A broker is alive if a leader has received a fetch from it within this time, or a follower an
# answer, however its address reacts.
PROOF_OF_LIFE_MS = 2_000
# Replica fetches of a live broker follow each other within replica_fetch_max_wait_ms, which is this
# by default.
USUAL_FETCH_WAIT_MS = 500
# Values of `RejectedStart.cause`: a process that ran and ended with a fault of its own; an address
# that cannot be used; a broker id that belongs to another directory, or that another process holds.
FAULT = "fault"
ADDRESS = "address"  # the process cannot listen on it
BROKER_ID_IN_USE = "broker_id_in_use"
VERSION = "version"  # the release does not support the level of the cluster or the directory
WAITS_FOR_LEASE = "waits_for_lease"
NOT_ITS_OWN_FAILURE = frozenset({FAULT, WAITS_FOR_LEASE})
UNFINISHED = "unfinished"  # it began, and reported nothing else
# Causes of a process beside the registered one, while that one is registered.
_OF_ANOTHER = frozenset({BROKER_ID_IN_USE, "directory_in_use", UNFINISHED})
# A rejected start explains the broker's last end if it is no older than that end. A start fails
# after it, by clocks that may differ by NEWER_BY_MS. A process with a fault reports it first and
# then transfers its leaderships (shutdown_timeout_ms).
NEWER_BY_MS = 2_000
HANDED_OVER_WITHIN_MS = 20_000
# States of a controller that the store names and that does not answer.
_MAY_BE_ACTIVE = (Listening.BUSY, Listening.SILENT, Listening.ERRS, Listening.UNRESOLVED)
_NO_CONNECTION = (Listening.REFUSES, Listening.SILENT)
# The time that a new incarnation may need for each replica of its full state when it gets little
# CPU, and the longest silence that this excuses.
FULL_STATE_MS_PER_REPLICA = 5
MAX_FULL_STATE_MS = 60_000

_NOTHING = ControllerState(active=False, controller_epoch=NOT_KNOWN)  # of no service


class Liveness(enum.Enum):
    """Whether a broker is alive, according to probes and answers."""

    ANSWERS = enum.auto()
    DEAD = enum.auto()
    PAUSED = enum.auto()  # accepts connections and answers nothing
    BUSY = enum.auto()  # answers only health checks, or is processing its full state
    UNREACHABLE = enum.auto()  # gave no answer here; others may report whether it is alive


def _proof_of_life(ages_ms: Iterable[int]) -> int | None:
    return min((age for age in ages_ms if 0 <= age <= PROOF_OF_LIFE_MS), default=None)


class ClusterView:
    def __init__(self, observed: Observation) -> None:
        self.observed = observed
        self.reporters = sorted(observed.reporters, key=name_of)
        self.brokers = {s.id: s for s in observed.states if s.broker is not None}
        self.broker_states = {b: s.broker for b, s in self.brokers.items() if s.broker is not None}
        self.controllers = [s for s in observed.states if s.controller is not None]
        self.controllers.sort(key=lambda state: state.id)
        self.active = active_controller(observed.states)
        # States of busy brokers, without replicas.
        self._short_states = {s.id: s for s in observed.short_states if s.broker is not None}
        self.control = (self.active.controller if self.active else None) or _NOTHING
        self.registry = self._registry()
        reporter = self.registry.reporter
        reported = (reporter.controller or reporter.broker if reporter else None) or _NOTHING
        # The first entry of a broker counts.
        self.departures = {d.broker_id: d for d in reversed(reported.departures)}
        self.rejected_starts = {start.broker_id: start for start in reported.rejected_starts}
        self.pressures = self._pressures()
        self.controller_pressures = controller_pressures(observed.reporters)
        self.backlogs = {backlog.broker_id: backlog for backlog in self.control.backlogs}
        self.deleting = {d.topic_id for d in self.control.deletions if not d.first_partition}
        self._liveness: dict[int, Liveness] = {}
        self._silent = {s.id: s for s in observed.silent if s.role == BROKER}
        self._replicas = {(TopicPartition(r.topic, r.partition), b): r for b, r in self.replicas()}
        self.keys = self._keys()
        self.links = Links((*self.brokers.values(), *self._short_states.values()), self.active)

    def now_ms(self) -> int:
        """Returns the active controller's wall clock, or the latest one of all services."""
        if self.active is not None:
            return self.active.now_ms
        return max((state.now_ms for state in self.observed.reporters), default=0)

    def liveness(self, broker_id: int) -> Liveness:
        if broker_id not in self._liveness:
            self._liveness[broker_id] = self._evaluate_liveness(broker_id)
        return self._liveness[broker_id]

    def _evaluate_liveness(self, broker_id: int) -> Liveness:
        if broker_id in self.brokers:
            return Liveness.ANSWERS
        silent = self._silent.get(broker_id)
        registered = broker_id in self.registry.brokers
        alive = self.is_alive_by_peers(broker_id)
        if silent is not None and silent.listening is Listening.BUSY:
            return Liveness.BUSY
        if silent is not None and self._address_is_taken(silent):
            return Liveness.DEAD
        if silent is not None and silent.listening is Listening.ACCEPTS:
            if self.pending_full_state(broker_id) is not None:
                return Liveness.BUSY
            return Liveness.UNREACHABLE if alive else Liveness.PAUSED
        if silent is not None and silent.listening is Listening.ERRS:
            return Liveness.UNREACHABLE
        refuses = silent is not None and silent.listening is Listening.REFUSES
        if registered and alive and not (refuses and self._has_just_ended(broker_id)):
            return Liveness.UNREACHABLE
        # A registration proves nothing while the store cannot expire it. Neither does a missing
        # one if no service reports registrations.
        if (registered or self.registry.reporter is None) and not refuses:
            return Liveness.UNREACHABLE
        return Liveness.DEAD

    def _has_just_ended(self, broker_id: int) -> bool:
        """Whether signs of life are older than the refusal of a connection: the controller has lost
        its connection too, and no replica fetch or answer is as new as those of a live broker."""
        ages = (self.last_fetch_ms(broker_id), self.last_answer_ms(broker_id))
        newest = min((age for age in ages if age is not None), default=PROOF_OF_LIFE_MS)
        return not self.links.is_connected(broker_id) and newest > USUAL_FETCH_WAIT_MS

    def _address_is_taken(self, silent: SilentService) -> bool:
        """Whether another program uses the address of a broker that could not start."""
        alive = silent.id in self.registry.brokers or self.is_alive_by_peers(silent.id)
        is_used = silent.listening.takes_connections
        failed = self.failed_start(silent.id)
        return is_used and not alive and failed is not None and failed.cause == ADDRESS

    def pending_full_state(self, broker_id: int) -> BrokerBacklog | None:
        """Returns the backlog of a new incarnation that may still be processing its full state,
        because it registered only a short time ago, according to the active controller."""
        backlog = self.backlogs.get(broker_id)
        if backlog is None or backlog.known_for_ms < 0:
            return None
        needs_ms = min(MAX_FULL_STATE_MS, backlog.full_state_size * FULL_STATE_MS_PER_REPLICA)
        return backlog if backlog.known_for_ms < needs_ms else None

    def is_starting(self, broker_id: int) -> bool:
        """Whether the broker itself reports that it is starting."""
        return broker_id in self.broker_states and self.broker_states[broker_id].is_starting

    @property
    def metadata_unread(self) -> bool:
        """Whether no service that answered has read the metadata store yet, so that neither other
        services nor partitions are known."""
        reporters = self.observed.reporters
        return not any(state.controller or _has_read(state) for state in reporters)

    def failed_start(self, broker_id: int) -> RejectedStart | None:
        """Returns why the broker's last start failed.

        None if it has run since, or if the cause is another process that holds its id now. If no
        process holds the id, it belongs to a directory that is missing, for example because its
        disk is not mounted.
        """
        rejected = self._last_rejected_start(broker_id, NEWER_BY_MS)
        if rejected is None or rejected.cause in NOT_ITS_OWN_FAILURE or rejected.has_run_since:
            return None
        is_held = broker_id in self.registry.brokers
        return None if rejected.cause in _OF_ANOTHER and is_held else rejected

    def is_new(self, broker_id: int) -> bool:
        """Whether no broker of this id is known to have been part of the cluster."""
        return not (
            broker_id in self.registry.brokers
            or broker_id in self.departures
            or any(broker_id in key.replicas for key in self.keys.values())
        )

    def runs_as_another(self, broker_id: int) -> bool:
        """Whether the data directory that was rejected as a new broker's is now registered under
        another id: it was started with the wrong id."""
        rejected = self.rejected_starts.get(broker_id)
        return (
            rejected is not None
            and rejected.directory_id != ""
            and self.is_new(broker_id)
            and any(b.directory_id == rejected.directory_id for b in self.registry.brokers.values())
        )

    def crash(self, broker_id: int) -> RejectedStart | None:
        """Returns the fault with which its last process ended, as that process reported it."""
        rejected = self._last_rejected_start(broker_id, HANDED_OVER_WITHIN_MS)
        return rejected if rejected is not None and rejected.cause == FAULT else None

    def _last_rejected_start(
        self, broker_id: int, before_departure_ms: int
    ) -> RejectedStart | None:
        """Returns None, too, if a process was registered since and ended in another way."""
        rejected = self.rejected_starts.get(broker_id)
        departure = self.departures.get(broker_id)
        if rejected is None or departure is None or rejected.after_registration:
            return rejected
        return rejected if rejected.at_ms >= departure.at_ms - before_departure_ms else None

    def was_stopped(self, broker_id: int) -> bool:
        """Whether its last process was stopped cleanly. Departures hold only brokers that are not
        back."""
        if self.crash(broker_id) is not None:
            return False
        departure = self.departures.get(broker_id)
        return departure is not None and departure.cause == Cause.BROKER_STOPPED.value

    def is_alive_by_peers(self, broker_id: int) -> bool:
        return (
            self.last_fetch_ms(broker_id) is not None or self.last_answer_ms(broker_id) is not None
        )

    def silent_broker(self, broker_id: int) -> SilentService | None:
        return self._silent.get(broker_id)

    def has_unresolved_name(self, broker_id: int) -> bool:
        """Whether its registered address cannot be resolved here, though it may answer at
        another."""
        silent = self._at_registered(broker_id)
        return silent is not None and silent.listening is Listening.UNRESOLVED

    def answers_elsewhere(self, broker_id: int) -> bool:
        """Whether it answers, but not at its registered address."""
        silent, unreachable = (
            self._at_registered(broker_id),
            (*_NO_CONNECTION, Listening.UNRESOLVED),
        )
        return silent is not None and broker_id in self.brokers and silent.listening in unreachable

    def _at_registered(self, broker_id: int) -> SilentService | None:
        """Returns the silent service at its registered address, or None if that address answers."""
        silent, registered = self._silent.get(broker_id), self.registry.brokers.get(broker_id)
        if silent is None or registered is None or silent.address != registered.address:
            return None
        return silent

    def silent_controllers(self) -> list[SilentService]:
        return [s for s in self.observed.silent if s.role == CONTROLLER]

    def named_active(self) -> list[str]:
        """Returns addresses that are named as the active controller's and do not answer."""
        reporters = self.observed.reporters
        addresses = [s.broker.controller_address for s in reporters if s.broker]
        addresses += [s.controller.active_address for s in reporters if s.controller]
        answered = {state.address for state in self.controllers}
        return sorted({address for address in addresses if address} - answered)

    @property
    def has_no_controller(self) -> bool:
        """Whether no controller is active, or the active one is paused.

        False if the active one is or may be alive and only does not answer here, and if no service
        could know of one.
        """
        named = self.named_active()
        if self.metadata_unread and not self.silent_controllers():
            return False
        return self.active is None and not any(
            service.address in named
            and (service.listening in _MAY_BE_ACTIVE or self.silenced_by(service))
            for service in self.observed.silent
        )

    def silenced_by(self, service: SilentService) -> str:
        """Returns the resource whose shortage keeps a running controller from answering, or ""."""
        if service.role != CONTROLLER or service.listening is Listening.REFUSES:
            return ""
        return silencing(self.controller_pressures.get(service.id, {}))

    def last_fetch_ms(self, broker_id: int) -> int | None:
        """Returns the age of its last fetch at a leader, if that proves that it is alive."""
        return _proof_of_life(heard.last_fetch_ms for heard in self._heard(broker_id))

    def last_answer_ms(self, broker_id: int) -> int | None:
        """Returns the age of its last answer to a follower, if that proves that it is alive."""
        return _proof_of_life(heard.last_answer_ms for heard in self._heard(broker_id))

    def _heard(self, broker_id: int) -> Iterator[HeardBroker]:
        """Yields brokers' reports of its fetches and answers, healthy partitions included."""
        for state in (*self.brokers.values(), *self._short_states.values()):
            assert state.broker is not None
            yield from (heard for heard in state.broker.heard if heard.broker_id == broker_id)

    def replicas(self) -> Iterator[tuple[int, ReplicaState]]:
        """Yields all reported replicas, with their brokers, by broker id."""
        for broker_id, broker in sorted(self.broker_states.items()):
            for replica in broker.replicas:
                yield broker_id, replica

    def replicas_of(self, broker_id: int) -> Sequence[ReplicaState]:
        """Returns the replicas that the broker reports; healthy ones may be missing."""
        broker = self.broker_states.get(broker_id)
        return () if broker is None else broker.replicas

    def replica(self, key: PartitionKeyState, broker_id: int) -> ReplicaState | None:
        """Returns a replica as its own broker reports it. None if it does not, or if it holds
        another topic of that name."""
        replica = self._replicas.get((name_of_key(key), broker_id))
        if replica is not None and key.topic_id and replica.topic_id != key.topic_id:
            return None
        return replica

    def leaves_out(self, key: PartitionKeyState, broker_id: int) -> bool:
        """Whether a broker that was queried for unhealthy replicas does not report this one, which
        means that it was healthy at that time."""
        reports_all = bool(self.observed.scope.topic)
        described = (name_of_key(key), broker_id) in self._replicas
        return broker_id in self.brokers and not reports_all and not described

    def leading(self, key: PartitionKeyState) -> tuple[ReplicaState, LeaderState] | None:
        """Returns the leader's state. None if it does not answer, or does not report that it
        leads."""
        if key.leader == NO_LEADER:
            return None
        replica = self.replica(key, key.leader)
        if replica is None or replica.leader is None:
            return None
        return replica, replica.leader

    def progress(self, key: PartitionKeyState, broker_id: int) -> FollowerProgress | None:
        """Returns what the leader reports about a follower."""
        leading = self.leading(key)
        if leading is None:
            return None
        return next((f for f in leading[1].followers if f.broker_id == broker_id), None)

    def store_lost(self, broker_id: int) -> bool:
        state = self.brokers.get(broker_id) or self._short_states.get(broker_id)
        return state is not None and state.store.unreachable_ms >= 0

    def cannot_write_store(self, broker_id: int) -> bool:
        return self.store_lost(broker_id) or self.store_is_full

    @property
    def store_is_full(self) -> bool:
        """Whether any service had a write rejected; one is enough."""
        return any(state.store.write_problem for state in self.observed.reporters)

    def store_lost_by_all(self) -> bool:
        """Whether no service reaches the store; a full store counts as lost.

        True, too, if some lost it so recently that others may not have used it since, unless the
        store answered one of those in the meantime. A service that has just started and had no
        answer yet does not count.
        """
        if self.store_is_full:
            return True
        return is_lost_for_all(self.observed.reporters)

    def store_root(self, broker_id: int) -> Root:
        """Returns a root of the store if all services miss it, else one of the broker that does."""
        if self.store_lost_by_all():
            return self.lost_store_root
        return Root(causes.STORE_UNREACHABLE, broker_id)

    @property
    def store_accepts_changes(self) -> bool:
        """Whether the store accepts changes, by the service that reports registrations."""
        return self.registry.store_answers and not self.store_is_full

    @property
    def lost_store_root(self) -> Root:
        """The root if all services miss the store."""
        return Root(causes.STORE_FULL if self.store_is_full else causes.STORE_UNREACHABLE)

    def _registry(self) -> Registry:
        if self.active is not None and self.active.controller is not None:
            reporter, registered_brokers = self.active, self.active.controller.registered
        else:
            # Brokers with complete answers come before busy ones, which report no more.
            brokers = sorted(
                (*self.brokers.values(), *self._short_states.values()),
                key=lambda s: (
                    not _has_read(s),
                    s.store.unreachable_ms >= 0,
                    s.id in self._short_states,
                    s.id,
                ),
            )
            if not brokers:
                return Registry({}, None, store_answers=False)
            reporter = brokers[0]
            assert reporter.broker is not None
            registered_brokers = reporter.broker.registered
        registered = {broker.broker_id: broker for broker in registered_brokers}
        return Registry(registered, reporter, reporter.store.unreachable_ms < 0)

    def _pressures(self) -> dict[tuple[int, str], BrokerPressure]:
        """Returns pressures by broker id and resource. A broker's own report comes before that of
        others."""
        found: dict[tuple[int, str], BrokerPressure] = {}
        for state in sorted(self.observed.reporters, key=lambda s: s.broker is not None):
            for pressure in (state.controller or state.broker or _NOTHING).pressures:
                own = state.broker is not None and state.id == pressure.broker_id
                if own or (pressure.broker_id, pressure.resource) not in found:
                    found[pressure.broker_id, pressure.resource] = pressure
        # A disk that fails or hangs is slow as well: that is one fault.
        for broker_id in self.brokers:
            if any(replica.failure == "disk_error" for replica in self.replicas_of(broker_id)):
                found.pop((broker_id, DISK), None)
        return found

    def pressure(self, broker_id: int, resource: str) -> BrokerPressure | None:
        return self.pressures.get((broker_id, resource))

    def _keys(self) -> dict[TopicPartition, PartitionKeyState]:
        """Returns keys by name: the controller's before those that brokers have read, and these
        before those that only a leader reports. Topics that are being deleted are left out: their
        partitions have no leaders for that reason."""
        found = {name_of_key(key): key for key in keys_of_leaders(self.broker_states)}
        found |= {name_of_key(key): key for key in self.observed.metadata}
        found |= {name_of_key(key): key for key in self.control.partitions}
        return {
            name: as_its_leader_reports(
                found[name], self.broker_states.get(found[name].leader), self.leading(found[name])
            )
            for name in sorted(found)
            if found[name].topic_id not in self.deleting
        }


def _has_read(state: ServiceState) -> bool:
    return state.broker is not None and state.broker.has_read_metadata
