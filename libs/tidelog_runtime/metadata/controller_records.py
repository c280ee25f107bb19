"""Controllers that ran lately, and those that wait for their id; as the metadata store has them.

- `controllers/known/<id>` outlives the registration under `controllers/ids/<id>`. A controller
  that is gone is reported as missing because of this key; nothing else records that it existed.
- `controllers/waiting/<id>` is under a lease of a process that waits because another one is
  registered under its id. It ends with the wait or with the process.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass

from tidelog.inspection.controller_reports import WaitingController
from tidelog.inspection.state_reports import MissingController
from tidelog_runtime.metadata.broker_directories import known_fields
from tidelog_runtime.metadata.entries_by_id import EntriesById

# Interval at which a running controller writes its key again.
SEEN_INTERVAL_SECONDS = 3_600
# A controller that was not seen for this time counts as taken out of service.
MISSING_FOR_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class KnownController:
    """Value of `controllers/known/<id>`. All times are wall clock.

    - `seen_at_ms`: when it last ran, within SEEN_INTERVAL_SECONDS.
    - `stopped_at_ms`: when its last process stopped cleanly; 0: it runs, or it crashed.
    - `fault`, `fault_at_ms`: the fault with which its last process ended, as it reported, and
      when.
    - `crashes`, `crashing_since_ms`, `crashed_at_ms`, `crash_reason`: the latest series of its
      crashes, as the next process counted them, and why the last one happened, if it reported it.
    """

    address: str
    seen_at_ms: int
    stopped_at_ms: int = 0
    fault: str = ""
    fault_at_ms: int = 0
    crashes: int = 0
    crashing_since_ms: int = 0
    crashed_at_ms: int = 0
    crash_reason: str = ""

    def counts_as_missing(self, now_ms: int) -> bool:
        return now_ms - max(self.seen_at_ms, self.stopped_at_ms) <= MISSING_FOR_MS


def encode_known_controller(known: KnownController) -> bytes:
    return json.dumps(asdict(known), separators=(",", ":")).encode()


def decode_known_controller(value: bytes) -> KnownController:
    """Raises TypeError or ValueError for a value that no controller writes."""
    raw = json.loads(value)
    if not isinstance(raw, dict):
        raise ValueError("a known controller is a JSON object")
    return KnownController(**known_fields(KnownController, raw))


class KnownControllers(EntriesById[KnownController]):
    """Controllers that ran lately, whether or not they run now."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix, decode_known_controller)

    def missing(self, registered: Container[int], now_ms: int) -> tuple[MissingController, ...]:
        """Returns the controllers that are not registered, ordered by id."""
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
            if controller_id not in registered and past.counts_as_missing(now_ms)
        )

    def crashing(self) -> Iterator[tuple[int, KnownController]]:
        """Yields the controllers with a series of crashes, ordered by id."""
        for controller_id, past in sorted(self._entries.items()):
            if past.crashes:
                yield controller_id, past


def encode_waiting_controller(waiting: WaitingController) -> bytes:
    return json.dumps(asdict(waiting), separators=(",", ":")).encode()


def decode_waiting_controller(value: bytes) -> WaitingController:
    """Raises TypeError or ValueError for a value that no controller writes."""
    raw = json.loads(value)
    if not isinstance(raw, dict):
        raise ValueError("a waiting controller is a JSON object")
    return WaitingController(**known_fields(WaitingController, raw))


class WaitingControllers(EntriesById[WaitingController]):
    """The waiting controllers, kept up to date by changes of the keys under `prefix`."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix, decode_waiting_controller)

    def described(self) -> tuple[WaitingController, ...]:
        """Returns the waiting controllers, ordered by id."""
        return tuple(waiting for _, waiting in sorted(self._entries.items()))
