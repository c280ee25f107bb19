"""Server-sent events as text. Pure.

See https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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
