"""A load at a fixed rate, and the latency of its requests. Pure.

An open loop: requests are due at fixed times, whatever the outcome of earlier ones. Latency counts
from the time when a request was due and not from when it was sent, so that it includes the wait for
an earlier request or a slow sender (Tene's "coordinated omission"). Times are seconds of one
monotonic clock."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence


class Schedule:
    """The due times of requests: `1 / rate` seconds apart, the first at `begin_s`."""

    def __init__(self, rate: float, begin_s: float) -> None:
        if rate <= 0:
            raise ValueError(f"the rate is {rate:g} requests a second; it must be above 0")
        self._rate = rate
        self._begin_s = begin_s
        self._taken = 0

    @property
    def next_s(self) -> float:
        """The time when the next request is due."""
        # Not a running sum, whose errors would accumulate.
        return self._begin_s + self._taken / self._rate

    def due(self, now_s: float) -> Iterator[float]:
        """Yields the due times of requests that are due by now and were not returned before."""
        while (due_s := self.next_s) <= now_s:
            self._taken += 1
            yield due_s


class Latencies:
    """The latencies of requests by the time when they were due; failures separately."""

    def __init__(self) -> None:
        self._due_s = array("d")
        self._took_ms = array("d")
        self._failed_s = array("d")

    def note(self, due_s: float, ended_s: float) -> None:
        self._due_s.append(due_s)
        self._took_ms.append((ended_s - due_s) * 1000)

    def note_failure(self, due_s: float) -> None:
        self._failed_s.append(due_s)

    @property
    def failed(self) -> int:
        return len(self._failed_s)

    def within(self, begin_s: float, end_s: float) -> Sequence[float]:
        """Returns the sorted latencies in milliseconds of requests that were due from `begin_s` and
        before `end_s`."""
        pairs = zip(self._due_s, self._took_ms, strict=True)
        return sorted(took for due, took in pairs if begin_s <= due < end_s)
