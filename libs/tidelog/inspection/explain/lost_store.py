"""Whether nobody reaches the metadata store, by what services say of its answers."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.inspection.model import NOT_KNOWN, ServiceState, StoreHealth

# Within this every service has asked the store again, whether it needed to or not.
STORE_SPREAD_MS = 15_000
# By so much the services may have been described one after the other.
DESCRIBED_WITHIN_MS = 1_000
# Within this every member of the store has been probed again, and a probe without answer ended.
MEMBERS_PROBED_MS = 5_000


def is_lost_for_all(states: Sequence[ServiceState]) -> bool:
    """Also where others may not have asked it since some have lost it."""
    asked = [state.store for state in states if has_asked_store(state)]
    lost_ms = max((store.unreachable_ms for store in asked), default=NOT_KNOWN)
    if lost_ms < 0:
        return False
    others = [store for store in asked if store.unreachable_ms < 0]
    return not others or (
        lost_ms < STORE_SPREAD_MS and not any(answered_within(s, lost_ms) for s in others)
    )


def answered_within(store: StoreHealth, ms: int) -> bool:
    """Whether the store answered this service since others lost it, so long ago."""
    if any(age < ms - DESCRIBED_WITHIN_MS for age in store.quick_answers_ms):
        return True
    reached = [member.unreachable_ms < 0 for member in store.members]
    return ms >= MEMBERS_PROBED_MS and bool(reached) and all(reached)


def has_asked_store(state: ServiceState) -> bool:
    """And knows by now whether it answers."""
    store = state.store
    return store.unreachable_ms >= 0 or store.last_latency_ms >= 0
