"""Finds the active controller among those that claim to be active."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.inspection.model import NOT_KNOWN, ServiceState


def active_controller(states: Sequence[ServiceState]) -> ServiceState | None:
    """Returns the one with the highest epoch among those that claim to be active.

    A deposed controller without the metadata store cannot know it, and does not count: brokers
    know a higher epoch, or read another address from a store that answers them.
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
