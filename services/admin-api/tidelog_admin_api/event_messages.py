"""Server-sent events: their ids, their text, and a ring of the newest ones. Pure.

All gateways give an event the same id, also after a restart, so that a stream can continue
where it ended. See https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog.client.event_streams import Silent
from tidelog.state_changes.event import StateChange
from tidelog.state_changes.json_form import to_object

MEDIA_TYPE = "text/event-stream"
# How long a browser waits before it connects again.
RETRY_MS = 2_000
MAX_KEPT_EVENTS = 20_000

HEARTBEAT = b": heartbeat\n\n"
OPENING = f"retry: {RETRY_MS}\n: following\n\n".encode()
STATE_CHANGE, SERVICE_SILENT = "state_change", "service_silent"

_DIGEST_BYTES = 6
_ID = re.compile(r"([0-9]{1,15})-[0-9a-f]{12}")


def event_id(change: StateChange) -> str:
    """Returns the time of the event and a digest of its content."""
    content = json.dumps(to_object(change), sort_keys=True).encode()
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
    return f"{change.time_ms}-{digest}"


def time_ms_of(text: str) -> int | None:
    """Returns the time in an event's id, or None if `text` is not such an id."""
    found = _ID.fullmatch(text)
    return int(found[1]) if found else None


def event_object(change: StateChange, id_: str) -> dict[str, Any]:
    """Returns the state change as a JSON object, for lists and streams."""
    fields = to_object(change)
    return {"id": id_, "time": fields.pop("time"), "time_ms": change.time_ms, **fields}


def message(kind: str, data: Mapping[str, Any], id_: str = "") -> bytes:
    """Returns the message. `data` is a single line of JSON, so that it cannot end the message.

    >>> message("state_change", {"topic": "sea"}, "7")
    b'id: 7\\nevent: state_change\\ndata: {"topic":"sea"}\\n\\n'
    """
    lines = [f"id: {id_}"] if id_ else []
    lines += [f"event: {kind}", f"data: {json.dumps(data, separators=(',', ':'))}"]
    return "\n".join([*lines, "", ""]).encode()


@dataclass(slots=True)
class RingEntry:
    """A state change, or a service that stopped answering.

    - `id`: empty for a silent service
    """

    id: str
    what: StateChange | Silent
    _encoded: bytes = b""

    @property
    def encoded(self) -> bytes:
        """The message of a stream, serialized once for all streams."""
        if not self._encoded:
            if isinstance(self.what, Silent):
                silence = {"address": self.what.address, "problem": self.what.problem}
                self._encoded = message(SERVICE_SILENT, silence)
            else:
                self._encoded = message(STATE_CHANGE, event_object(self.what, self.id), self.id)
        return self._encoded


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
            # An event that was added twice is kept under its later position.
            if self._positions.get(entry.id, self._first + count) < self._first + count:
                del self._positions[entry.id]
        del self._entries[:count]
        self._first += count
