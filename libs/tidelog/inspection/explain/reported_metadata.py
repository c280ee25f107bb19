"""What services report about controllers, also those that do not answer, about partition keys, and
about the metadata store.

Pure functions of the services' states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.inspection.resource_pressures import ControllerPressure
from tidelog.inspection.state_reports import (
    NOT_KNOWN,
    BrokerState,
    InSyncMember,
    LeaderState,
    MissingController,
    PartitionKeyState,
    RegisteredBroker,
    ReplicaState,
    ServiceState,
    StoreHealth,
)
from tidelog.model import NO_EPOCH

# Every service uses the store at least this often, whether it needs to or not.
STORE_SPREAD_MS = 15_000
# The time within which services may have been described one after the other.
DESCRIBED_WITHIN_MS = 1_000
# Within this time every member of the store is probed again, and a probe without answer ends.
MEMBERS_PROBED_MS = 5_000


@dataclass(frozen=True, slots=True)
class Registry:
    """The registrations that count. `reporter`: the service that reports them. `store_answers`:
    whether that service sees changes of the store."""

    brokers: dict[int, RegisteredBroker]
    reporter: ServiceState | None
    store_answers: bool


def active_controller(states: Sequence[ServiceState]) -> ServiceState | None:
    """Returns the one with the highest epoch among those that claim to be active.

    A deposed controller that does not reach the metadata store cannot detect it, and does not
    count: brokers report a higher epoch, or another address from a store that answers them.
    """
    brokers = [state for state in states if state.broker is not None]
    heard = max((s.broker.controller_epoch for s in brokers if s.broker), default=NOT_KNOWN)
    named = {
        s.broker.controller_address
        for s in brokers
        if s.broker and s.broker.controller_address and s.store.unreachable_ms < 0
    }
    active = [
        state
        for state in states
        if state.controller is not None
        and state.controller.active
        and state.controller.controller_epoch >= heard
        and (state.store.unreachable_ms < 0 or not named or state.address in named)
    ]
    return max(
        active,
        key=lambda s: s.controller.controller_epoch if s.controller else NOT_KNOWN,
        default=None,
    )


def controller_pressures(
    reporters: Iterable[ServiceState],
) -> dict[int, dict[str, ControllerPressure]]:
    """Returns pressures by controller id and resource.

    A controller's own report comes before what others have read in the store. Among those, services
    that see changes of the store come first.
    """
    found: dict[int, dict[str, ControllerPressure]] = {}
    own: dict[int, dict[str, ControllerPressure]] = {}
    for state in sorted(reporters, key=lambda s: s.store.unreachable_ms >= 0):
        reporting = state.controller or state.broker
        for pressure in reporting.controller_pressures if reporting is not None else ():
            found.setdefault(pressure.controller_id, {}).setdefault(pressure.resource, pressure)
        if state.controller is not None:
            reported = state.controller.controller_pressures
            own[state.id] = {p.resource: p for p in reported if p.controller_id == state.id}
    return {**found, **own}


def missing_controllers(reporters: Iterable[ServiceState]) -> list[MissingController]:
    """Returns them ordered by id."""
    found: dict[int, MissingController] = {}
    for state in reporters:
        reporting = state.controller or state.broker
        for missing in reporting.missing_controllers if reporting is not None else ():
            found.setdefault(missing.controller_id, missing)
    return [missing for _, missing in sorted(found.items())]


def keys_of_leaders(brokers: Mapping[int, BrokerState]) -> Iterator[PartitionKeyState]:
    """Yields keys from the states of leaders. No service reports the key of a healthy partition, so
    that these lack the order of preference."""
    for broker_id, broker in brokers.items():
        for replica in broker.replicas:
            if replica.leader is None:
                continue
            followers = replica.leader.followers
            in_sync = [(f.broker_id, f.broker_epoch) for f in followers if f.in_isr]
            members = [(broker_id, broker.broker_epoch), *in_sync]
            yield PartitionKeyState(
                replica.topic,
                replica.topic_id,
                replica.partition,
                (broker_id, *(f.broker_id for f in followers)),
                broker_id,
                replica.leader_epoch,
                tuple(InSyncMember(*member) for member in members),
                (),
                min_isr=replica.leader.min_isr,
                unclean_leader_epoch=NO_EPOCH,
                revision=replica.revision,
            )


def as_its_leader_reports(
    key: PartitionKeyState,
    broker: BrokerState | None,
    leading: tuple[ReplicaState, LeaderState] | None,
) -> PartitionKeyState:
    """Returns the key with the ISR that its leader has written since the key was read: services are
    described one after the other, and the leader changes the ISR by itself."""
    if leading is None or broker is None:
        return key
    replica, leader = leading
    if replica.leader_epoch != key.leader_epoch or not 0 < key.revision < replica.revision:
        return key
    members = [InSyncMember(f.broker_id, f.broker_epoch) for f in leader.followers if f.in_isr]
    isr = (InSyncMember(key.leader, broker.broker_epoch), *members)
    return replace(key, isr=isr, revision=replica.revision)


def is_lost_for_all(states: Sequence[ServiceState]) -> bool:
    """Whether no service reaches the store. True, too, if some lost it and the others may not have
    used it since."""
    used = [state.store for state in states if has_used_store(state)]
    lost_ms = max((store.unreachable_ms for store in used), default=NOT_KNOWN)
    if lost_ms < 0:
        return False
    others = [store for store in used if store.unreachable_ms < 0]
    return not others or (
        lost_ms < STORE_SPREAD_MS and not any(answered_within(s, lost_ms) for s in others)
    )


def answered_within(store: StoreHealth, ms: int) -> bool:
    """Whether the store answered this service after others lost it `ms` ago."""
    if any(age < ms - DESCRIBED_WITHIN_MS for age in store.quick_answers_ms):
        return True
    reached = [member.unreachable_ms < 0 for member in store.members]
    return ms >= MEMBERS_PROBED_MS and bool(reached) and all(reached)


def has_used_store(state: ServiceState) -> bool:
    """Whether the service has used the store, so that it can report whether the store answers."""
    store = state.store
    return store.unreachable_ms >= 0 or store.last_latency_ms >= 0
