"""What an event is called: the same by every gateway, and after a restart, so that a stream can
go on where it ended. Pure."""

from __future__ import annotations

import hashlib
import json
import re

from tidelog.state_changes.event import StateChange
from tidelog.state_changes.json_form import to_object

_DIGEST_BYTES = 6
_FORM = re.compile(r"([0-9]{1,15})-[0-9a-f]{12}")


def event_id(change: StateChange) -> str:
    """Its time, and a digest of all that it says."""
    said = json.dumps(to_object(change), sort_keys=True).encode()
    digest = hashlib.blake2b(said, digest_size=_DIGEST_BYTES).hexdigest()
    return f"{change.time_ms}-{digest}"


def time_ms_of(text: str) -> int | None:
    """Of an event by its id; None: it is none."""
    found = _FORM.fullmatch(text)
    return int(found[1]) if found else None
