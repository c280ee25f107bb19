"""Limits on the answers that a service holds until their clients have received them. No I/O.

gRPC keeps an answer in memory until the client takes it, for which the client has any time that it
likes. So the bytes of each answer count until its call is over, and a connection that takes no
answer for ANSWER_TIMEOUT_MS is closed: that is the only way to end a call whose answer gRPC is
sending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError

# Limits of each client address, then of all clients together. An answer that is read while less
# room is left is smaller, down to one batch.
UNSENT_BYTES_PER_CLIENT = "unsent_answer_bytes_per_client"
UNSENT_BYTES = "unsent_answer_bytes"
# Seconds that a client may take to receive the answer to a call.
ANSWER_TIMEOUT = "answer_timeout_s"
ANSWER_LIMITS = {UNSENT_BYTES_PER_CLIENT: 128 << 20, UNSENT_BYTES: 256 << 20, ANSWER_TIMEOUT: 60}
ANSWER_TIMEOUT_MS = 1_000 * ANSWER_LIMITS[ANSWER_TIMEOUT]
# A smaller answer is always sent.
SMALL_ANSWER_BYTES = 64 << 10
# The first answer of an address may have this size in any case.
RESERVED_BYTES = 1 << 20


@dataclass(eq=False, slots=True)
class CallAnswer:
    """The answer of one call.

    - `size`: the bytes that are counted for it.
    - `since_ms`: when it was handed to gRPC; None: it is not complete, or its client may take any
      time.
    """

    answers: UnsentAnswers
    peer: str
    address: str
    size: int = 0
    since_ms: int | None = None

    def room(self) -> int:
        """Returns by how many bytes the answer may grow."""
        return self.answers.room(self.address)

    def grow(self, size: int) -> None:
        """Counts so many bytes more. The last batch may exceed the room."""
        self.answers.count(self, self.size + size)

    def discard(self) -> None:
        """Counts nothing, because nothing of the answer is kept."""
        self.answers.count(self, 0)

    def reject(self) -> TidelogError:
        """Returns the error of an answer for which there is no room."""
        return self.answers.rejection(self.address)

    def set_size(self, size: int) -> None:
        """Counts the complete answer."""
        self.answers.count(self, size)

    def check_room(self, size: int) -> None:
        """Raises TOO_MANY_REQUESTS if a complete answer has no room. One that grew in its room has
        it."""
        if not self.size and size > SMALL_ANSWER_BYTES and size > self.room():
            raise self.reject()


class UnsentAnswers:
    """The answers of one process that are not received yet. `on_rejected` is called with an
    address, one of ANSWER_LIMITS, and its value."""

    def __init__(self, on_rejected: Callable[[str, str, int], None]) -> None:
        self._on_rejected = on_rejected
        self._by_address: Counter[str] = Counter()
        self._sending: dict[CallAnswer, None] = {}
        self.size = 0

    def room(self, address: str) -> int:
        """An address without unsent answers has RESERVED_BYTES even if others use up the total."""
        held = self._by_address[address]
        room = ANSWER_LIMITS[UNSENT_BYTES] - self.size
        if not held:
            room = max(room, RESERVED_BYTES)
        return min(room, ANSWER_LIMITS[UNSENT_BYTES_PER_CLIENT] - held)

    def count(self, answer: CallAnswer, size: int) -> None:
        self.size += size - answer.size
        self._by_address[answer.address] += size - answer.size
        if not self._by_address[answer.address]:
            del self._by_address[answer.address]
        answer.size = size

    def send(self, answer: CallAnswer, now_ms: int) -> None:
        """The client has ANSWER_TIMEOUT_MS from now on to receive the answer."""
        answer.since_ms = now_ms
        self._sending[answer] = None

    def end(self, answer: CallAnswer) -> None:
        """The call is over."""
        self._sending.pop(answer, None)
        self.count(answer, 0)

    def overdue(self, now_ms: int) -> list[CallAnswer]:
        """Returns the answers that their clients did not receive in time, the oldest first."""
        found = []
        for answer in self._sending:
            if answer.since_ms is None or now_ms - answer.since_ms < ANSWER_TIMEOUT_MS:
                break
            found.append(answer)
        return found

    def rejection(self, address: str) -> TidelogError:
        limit = UNSENT_BYTES_PER_CLIENT
        if ANSWER_LIMITS[UNSENT_BYTES] - self.size <= self.room(address):
            limit = UNSENT_BYTES
        value = ANSWER_LIMITS[limit]
        self._on_rejected(address, limit, value)
        of_whom = "all clients together" if limit == UNSENT_BYTES else f"client {address}"
        return TidelogError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"{of_whom} may have {value} bytes of answers that are not received yet ({limit}); "
            "receive answers before you send more requests, and try again in a moment",
        )
