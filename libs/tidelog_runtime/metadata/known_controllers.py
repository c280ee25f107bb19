"""Controllers that have run lately, whether or not they run now.

`controllers/known/<id>` outlives the registration under `controllers/ids/<id>`: so a controller
that is not there is missed, where nothing else tells that there has been one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tidelog_runtime.metadata.broker_directories import known_fields

# How often a controller that runs writes its key again.
SEEN_INTERVAL_SECONDS = 3_600
# A controller that has not been seen for so long was taken out of service.
MISSED_FOR_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class KnownController:
    """Value of `controllers/known/<id>`. `seen_at_ms`: wall clock of its last sign of life, within
    SEEN_INTERVAL_SECONDS. `stopped_at_ms`: when its last process was stopped in order; 0: it
    runs, or has crashed."""

    address: str
    seen_at_ms: int
    stopped_at_ms: int = 0

    def is_missed(self, now_ms: int) -> bool:
        return now_ms - max(self.seen_at_ms, self.stopped_at_ms) <= MISSED_FOR_MS


def encode_known_controller(known: KnownController) -> bytes:
    return json.dumps(asdict(known), separators=(",", ":")).encode()


def decode_known_controller(value: bytes) -> KnownController:
    """Raises TypeError or ValueError for what no controller has written."""
    raw = json.loads(value)
    if not isinstance(raw, dict):
        raise ValueError("a known controller is a JSON object")
    return KnownController(**known_fields(KnownController, raw))
