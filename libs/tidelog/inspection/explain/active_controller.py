"""Which of the controllers that hold themselves to be active is the one."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.inspection.model import NOT_KNOWN, ServiceState


def active_controller(states: Sequence[ServiceState]) -> ServiceState | None:
    """Of those that hold themselves to be active the one of the highest epoch. A deposed one
    that misses the store cannot know it, and does not count: brokers have heard of a higher
    epoch, or name another address out of a store that answers them."""
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
