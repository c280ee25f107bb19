"""Decides whether any service reaches the metadata store, from the services' own reports."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.inspection.model import NOT_KNOWN, ServiceState, StoreHealth

# Every service uses the store at least this often, whether it needs to or not.
STORE_SPREAD_MS = 15_000
# The time within which services may have been described one after the other.
DESCRIBED_WITHIN_MS = 1_000
# Within this time every member of the store is probed again, and a probe without answer ends.
MEMBERS_PROBED_MS = 5_000


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
