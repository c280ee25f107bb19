"""Ids of events. Pure.

All gateways give an event the same id, also after a restart, so that a stream can continue
where it ended.
"""

from __future__ import annotations

import hashlib
import json
import re

from tidelog.state_changes.event import StateChange
from tidelog.state_changes.json_form import to_object

_DIGEST_BYTES = 6
_FORM = re.compile(r"([0-9]{1,15})-[0-9a-f]{12}")


def event_id(change: StateChange) -> str:
    """Returns the time of the event and a digest of its content."""
    said = json.dumps(to_object(change), sort_keys=True).encode()
    digest = hashlib.blake2b(said, digest_size=_DIGEST_BYTES).hexdigest()
    return f"{change.time_ms}-{digest}"


def time_ms_of(text: str) -> int | None:
    """Returns the time in an event's id, or None if `text` is no such id."""
    found = _FORM.fullmatch(text)
    return int(found[1]) if found else None
