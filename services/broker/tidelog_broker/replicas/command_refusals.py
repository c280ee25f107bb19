"""Errors of controller commands that are rejected. Pure."""

from __future__ import annotations

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition


def of_older_controller(broker_id: int, controller_epoch: int, known_epoch: int) -> TidelogError:
    return TidelogError(
        ErrorCode.STALE_CONTROLLER_EPOCH,
        f"broker {broker_id} has accepted commands of controller epoch {known_epoch}; "
        f"epoch {controller_epoch} is older",
    )


def for_former_life(broker_id: int, broker_epoch: int, known_epoch: int) -> TidelogError:
    """`known_epoch` 0: the broker does not know its broker epoch yet."""
    present = f"is in broker epoch {known_epoch}" if known_epoch else "is starting"
    return TidelogError(
        ErrorCode.STALE_BROKER_EPOCH,
        f"broker {broker_id} {present}; the command is for its incarnation {broker_epoch}",
    )


def stops_nothing_yet(broker_id: int, name: TopicPartition) -> TidelogError:
    """The error before the full state.

    A late command cannot be distinguished from a new one then: the replica on the disk may have
    been assigned again since.
    """
    return TidelogError(
        ErrorCode.INVALID_REQUEST,
        f"broker {broker_id} has not received its full state yet and cannot stop {name}; "
        "send the full state first",
    )
