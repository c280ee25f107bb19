"""Which commands of a controller are accepted (KIP-380, KAFKA-9839), and why others are not."""

from __future__ import annotations

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition


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


def of_older_controller(broker_id: int, controller_epoch: int, known_epoch: int) -> TidelogError:
    return TidelogError(
        ErrorCode.STALE_CONTROLLER_EPOCH,
        f"broker {broker_id} has accepted commands of controller epoch {known_epoch}; "
        f"epoch {controller_epoch} is older",
    )


def for_previous_incarnation(broker_id: int, broker_epoch: int, known_epoch: int) -> TidelogError:
    """`known_epoch` 0: the broker does not know its broker epoch yet."""
    present = f"is in broker epoch {known_epoch}" if known_epoch else "is starting"
    return TidelogError(
        ErrorCode.STALE_BROKER_EPOCH,
        f"broker {broker_id} {present}; the command is for its incarnation {broker_epoch}",
    )


def cannot_stop_yet(broker_id: int, name: TopicPartition) -> TidelogError:
    """The error before the full state.

    A late command cannot be distinguished from a new one then: the replica on the disk may have
    been assigned again since.
    """
    return TidelogError(
        ErrorCode.INVALID_REQUEST,
        f"broker {broker_id} has not received its full state yet and cannot stop {name}; "
        "send the full state first",
    )
