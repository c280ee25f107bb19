"""Controllers that have run lately, whether or not they run now.

`controllers/known/<id>` outlives the registration under `controllers/ids/<id>`: so a controller
that is not there is missed, where nothing else tells that there has been one."""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import asdict, dataclass

from tidelog.inspection.model import MissingController
from tidelog_runtime.metadata.broker_directories import known_fields
from tidelog_runtime.metadata.entries_by_id import EntriesById

# How often a controller that runs writes its key again.
SEEN_INTERVAL_SECONDS = 3_600
# A controller that has not been seen for so long was taken out of service.
MISSED_FOR_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class KnownController:
    """Value of `controllers/known/<id>`. `seen_at_ms`: wall clock of its last sign of life, within
    SEEN_INTERVAL_SECONDS. `stopped_at_ms`: when its last process was stopped in order; 0: it
    runs, or has crashed. `fault`: with which its last process ended, by its own word, and when."""

    address: str
    seen_at_ms: int
    stopped_at_ms: int = 0
    fault: str = ""
    fault_at_ms: int = 0

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


class PastControllers(EntriesById[KnownController]):
    """Those that have run lately, whether or not they run now, as changes of keys report."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix, decode_known_controller)

    def missing(self, registered: Container[int], now_ms: int) -> tuple[MissingController, ...]:
        """Those that are not registered, ordered by id."""
        return tuple(
            MissingController(
                controller_id,
                past.address,
                past.seen_at_ms,
                past.stopped_at_ms,
                past.fault,
                past.fault_at_ms,
            )
            for controller_id, past in sorted(self._entries.items())
            if controller_id not in registered and past.is_missed(now_ms)
        )
