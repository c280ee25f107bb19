"""Waits of one request for several partitions, under one time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks, TopicPartition
from tidelog_broker.requests.purgatory import Committed, Purgatory

MAX_TIMEOUT_MS = 300_000


class CommitWait(NamedTuple):
    name: TopicPartition
    future: Committed


async def wait_for_commits(
    purgatory: Purgatory, waits: Mapping[int, CommitWait], acks: Acks, timeout_ms: int
) -> dict[int, TidelogError]:
    """Waits for the end of all waits. Returns their errors, by position."""

    def give_up() -> None:
        for name, future in waits.values():
            purgatory.give_up(name, acks, future, _timed_out(name, acks, timeout_ms))

    timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, give_up)
    errors: dict[int, TidelogError] = {}
    try:
        for position, (_, future) in waits.items():
            error = await future
            if error is not None:
                errors[position] = error
    finally:
        timer.cancel()
        # Also if the client has gone, and this call is cancelled.
        give_up()
    return errors


def require_timeout(timeout_ms: int) -> None:
    """Raises INVALID_REQUEST if the timeout is out of range."""
    if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"timeout_ms is {timeout_ms}; it must be between 1 and {MAX_TIMEOUT_MS}",
        )


def _timed_out(name: TopicPartition, acks: Acks, timeout_ms: int) -> TidelogError:
    who = "the replicas in sync" if acks is Acks.ALL else "the leader's disk"
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{name}: {who} did not have the batch within {timeout_ms} ms; it may still be committed",
    )
