"""Whose command counts (KIP-380, KAFKA-9839)."""

from __future__ import annotations

from tidelog.errors import ErrorCode


def fence_command(
    *,
    controller_epoch: int,
    broker_epoch: int,
    known_controller_epoch: int,
    known_broker_epoch: int,
) -> ErrorCode | None:
    """Older is refused. Newer is accepted: the controller may know of our registration
    before we do.

    `known_broker_epoch` 0: this process does not know yet which registrations are its
    predecessor's, and takes nothing. By a command for that one's life it would lead an
    epoch a second time, without the ISR change that its predecessor had in flight, and
    perhaps without the end of its log."""
    if controller_epoch < known_controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if known_broker_epoch == 0 or broker_epoch < known_broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return None
