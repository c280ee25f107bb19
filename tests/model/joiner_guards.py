"""The guards of an ISR change on the registrations of the brokers that join."""

from __future__ import annotations

from tidelog_broker.core import isr_proposals
from tidelog_broker.core.live_brokers import LiveBroker
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import RUNNING, BrokerRegistration
from tidelog_runtime.metadata.store import CreateRevision

from .values import BROKERS, MemberKey, Registered, Registrations, Value

KEYS = Keys("model")
RUNS = BrokerRegistration("host", "", "uuid", RUNNING, 0, 0)


def joiners_of(old: Value, new: Value) -> tuple[MemberKey, ...]:
    present = {broker for broker, _ in old.isr}
    return tuple(member for member in new.isr if member[0] not in present)


def guard_holds(registered: Registrations, joiners: tuple[MemberKey, ...]) -> bool:
    """Whether the guard on joiners holds: each registration is the one read while it ran."""
    read = {
        b: LiveBroker(RUNS, _created(incarnation), _created(incarnation))
        for b, incarnation in joiners
    }
    for guard in isr_proposals.joiner_guards(KEYS, read, read):
        found = next(
            r for b, r in zip(BROKERS, registered, strict=True) if KEYS.broker(b) == guard.key
        )
        if found is None:
            return False
        created = isinstance(guard, CreateRevision)
        if guard.revision != (_created(found.incarnation) if created else _revision(found)):
            return False
    return True


def _created(incarnation: int) -> int:
    return 2 * incarnation


def _revision(registered: Registered) -> int:
    """Returns the revision of a registration, which is written again when its broker stops."""
    return _created(registered.incarnation) + (not registered.running)
