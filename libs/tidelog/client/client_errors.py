"""Errors of clients, and of what they return, that are used after their end or elsewhere."""

from __future__ import annotations

from tidelog.errors import ErrorCode, TidelogError


def closed_error(client: str) -> TidelogError:
    return TidelogError(
        ErrorCode.CLIENT_CLOSED, f"{client} is closed; make a new one for further calls"
    )


def forked_error(client: str) -> TidelogError:
    return TidelogError(
        ErrorCode.CLIENT_FORKED,
        f"{client} was made before this process was forked, and works in the parent only; make a "
        "new one in this process",
    )


def other_loop_error(client: str) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_REQUEST,
        f"{client} belongs to another event loop, that of its first call; make one for each event "
        "loop, or share a SyncProducer, SyncConsumer or SyncAdmin",
    )
