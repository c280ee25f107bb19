"""Shared parts of the fetches of consumers and followers: wait, size, and order of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol

from tidelog.errors import TidelogError
from tidelog_broker.core.partition.exchange import FetchAnswer
from tidelog_broker.core.partition.replica_log import ReplicaLog
from tidelog_broker.storage.cold_reads import ColdReads

MAX_WAIT_MS = 60_000
# Upper bound of one answer, whatever the request allows. It bounds the memory of the broker and
# stays below the largest gRPC message.
MAX_RESPONSE_BYTES = 16 << 20
# Bytes of one producer for a follower that starts from scratch, as a generous estimate.
PRODUCER_BYTES = 256


def size_of(answer: FetchAnswer) -> int:
    size = sum(len(batch.records) for batch in answer.batches) if answer.batches else 0
    return size if answer.producers is None else size + PRODUCER_BYTES * len(answer.producers) + 1


def rotated(count: int, turn: int) -> Iterator[int]:
    """Returns the positions 0 to `count` - 1.

    Each turn begins with another one, so that a busy partition cannot starve those behind it.
    """
    return ((turn + position) % count for position in range(count))


def bytes_to_wait_for(min_bytes: int, max_bytes: int) -> int:
    """Returns the bytes that end a wait. More than an answer may carry is not waited for."""
    return min(min_bytes, max_bytes, MAX_RESPONSE_BYTES)


class Read(Protocol):
    def __call__(self, *, waits: bool) -> FetchAnswer:
        """Returns what memory holds, and with `waits` also what must be read from the disk."""


class ColdFetch:
    """Disk reads of one round of a fetch.

    They set `woken`, and read at most `max_bytes`, so that the data is still in memory when it is
    fetched.
    """

    def __init__(self, reads: ColdReads, woken: asyncio.Event, max_bytes: int) -> None:
        self._reads = reads
        self._woken = woken
        self._room = max_bytes

    def read(self, read: Read, log: ReplicaLog) -> FetchAnswer:
        """Returns what memory holds, and begins to read the rest.

        Data that was read and has left memory since is waited for: its fetch was postponed once
        already. Raises `LogError`.
        """
        answer = read(waits=False)
        cold = answer.cold
        if cold is None:
            return answer
        if not answer.batches and self._reads.has_read(log, cold):
            return read(waits=True)
        if self._room > 0:
            self._room -= cold.size
            self._reads.begin(log, cold, self._woken)
        return answer


class AnswerRoom(Protocol):
    """How large an answer may be (`tidelog.unsent_answers`)."""

    def room(self) -> int:
        """Returns by how many bytes it may grow."""

    def grow(self, size: int, /) -> None: ...

    def discard(self) -> None: ...

    def reject(self) -> TidelogError:
        """Returns the error of an answer for which there is no room."""


class Unlimited:
    """The room of an answer without a limit."""

    def room(self) -> int:
        return MAX_RESPONSE_BYTES

    def grow(self, size: int, /) -> None:
        pass

    def discard(self) -> None:
        pass

    def reject(self) -> TidelogError:
        raise AssertionError("there is always room")


class Deadline:
    """Wakes a wait at its end, and sets `over`.

    A timer of the loop may fire a moment before the loop's clock has reached its time.
    """

    def __init__(self, max_wait_ms: int, event: asyncio.Event) -> None:
        self.over = max_wait_ms <= 0
        self._event = event
        seconds = min(max_wait_ms, MAX_WAIT_MS) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._pass)
        self._sooner: asyncio.TimerHandle | None = None

    def _pass(self) -> None:
        self.over = True
        self._event.set()

    def wake_in(self, ms: int) -> None:
        """Also wakes the wait once before its end."""
        if self._sooner is not None:
            self._sooner.cancel()
        self._sooner = asyncio.get_running_loop().call_later(ms / 1000, self._event.set)

    def cancel(self) -> None:
        self._timer.cancel()
        if self._sooner is not None:
            self._sooner.cancel()
