"""Ids of events, and their text as server-sent events. Pure.

All gateways give an event the same id, also after a restart, so that a stream can continue
where it ended. See https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

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


MEDIA_TYPE = "text/event-stream"
# How long a browser waits before it connects again.
RETRY_MS = 2_000

HEARTBEAT = b": heartbeat\n\n"
OPENING = f"retry: {RETRY_MS}\n: following\n\n".encode()


def message(kind: str, data: Mapping[str, Any], id_: str = "") -> bytes:
    """Returns the message; `data` is one line of JSON, so that nothing in it ends the message.

    >>> message("state_change", {"topic": "sea"}, "7")
    b'id: 7\\nevent: state_change\\ndata: {"topic":"sea"}\\n\\n'
    """
    lines = [f"id: {id_}"] if id_ else []
    lines += [f"event: {kind}", f"data: {json.dumps(data, separators=(',', ':'))}"]
    return "\n".join([*lines, "", ""]).encode()
