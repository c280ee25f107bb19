"""A ring of the newest events, which each stream reads at its own pace. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.client.event_streams import Silent
from tidelog.state_changes.event import StateChange
from tidelog_admin_api.bodies.event_bodies import event_object
from tidelog_admin_api.event_messages import event_id, message

MAX_KEPT_EVENTS = 20_000


STATE_CHANGE, SERVICE_SILENT = "state_change", "service_silent"


@dataclass(slots=True)
class RingEntry:
    """An event, or a service that fell silent.

    - `id`: empty for a silent service, which is no event
    """

    id: str
    what: StateChange | Silent
    _sent: bytes = b""

    @property
    def sent(self) -> bytes:
        """The event as a message of a stream, serialized once for all streams."""
        if not self._sent:
            self._sent = self._message()
        return self._sent

    def _message(self) -> bytes:
        if isinstance(self.what, Silent):
            silence = {"address": self.what.address, "problem": self.what.problem}
            return message(SERVICE_SILENT, silence)
        return message(STATE_CHANGE, event_object(self.what, self.id), self.id)


def entry_of(change: StateChange) -> RingEntry:
    return RingEntry(event_id(change), change)


class Taken(NamedTuple):
    """Events taken from the ring.

    - `position`: where the next call continues
    - `missed`: number of events that left the ring before they were taken
    """

    entries: Sequence[RingEntry]
    position: int
    missed: int


class EventRing:
    """The newest events. Positions count all events that were ever added, from 0."""

    def __init__(self, max_kept: int = MAX_KEPT_EVENTS) -> None:
        self._max_kept = max_kept
        self._first = 0
        self._entries: list[RingEntry] = []
        self._positions: dict[str, int] = {}

    @property
    def end(self) -> int:
        """The position of the next event."""
        return self._first + len(self._entries)

    def add(self, what: Sequence[StateChange | Silent]) -> None:
        for one in what:
            entry = entry_of(one) if isinstance(one, StateChange) else RingEntry("", one)
            if entry.id:
                self._positions[entry.id] = self.end
            self._entries.append(entry)
        # Many at once, since removing the front of a list is slow.
        if len(self._entries) > 2 * self._max_kept:
            self._forget(len(self._entries) - self._max_kept)

    def take(self, position: int, limit: int) -> Taken:
        oldest = max(self._first, self.end - self._max_kept)
        begin = max(position, oldest)
        entries = self._entries[begin - self._first : begin - self._first + limit]
        return Taken(entries, begin + len(entries), begin - position)

    def after(self, entry_id: str) -> int | None:
        """Returns the position behind an event, or None if the ring does not have it."""
        position = self._positions.get(entry_id)
        if position is None or position < self.end - self._max_kept:
            return None
        return position + 1

    def _forget(self, count: int) -> None:
        for entry in self._entries[:count]:
            # An event that was added again is kept under its later position.
            if self._positions.get(entry.id, self._first + count) < self._first + count:
                del self._positions[entry.id]
        del self._entries[:count]
        self._first += count
