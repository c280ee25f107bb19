"""Which commands are accepted (KIP-380, KAFKA-9839)."""

from __future__ import annotations

from tidelog.errors import ErrorCode


def fence_command(
    *,
    controller_epoch: int,
    broker_epoch: int,
    known_controller_epoch: int,
    known_broker_epoch: int,
) -> ErrorCode | None:
    """Returns the error of a command from an older epoch, or None.

    Newer epochs are accepted: the controller may know of our registration before we do.

    `known_broker_epoch` 0: this process does not know yet which registrations are its
    predecessor's, and accepts no command. By a command for that incarnation it would lead an epoch
    a second time, without the ISR change that its predecessor had in flight, and perhaps without
    the end of its log.
    """
    if controller_epoch < known_controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if known_broker_epoch == 0 or broker_epoch < known_broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return None
