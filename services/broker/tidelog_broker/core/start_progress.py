"""The progress of a broker's start. Pure."""

from __future__ import annotations

from tidelog.inspection.state_reports import (
    OPENS_LOGS,
    READS_METADATA,
    REGISTERS,
    TAKES_STATES,
    WAITS_FOR_STORE,
)

_SAID = {
    WAITS_FOR_STORE: "it waits for the metadata store",
    OPENS_LOGS: "it opens its logs",
    READS_METADATA: "it reads the cluster's metadata",
    REGISTERS: "it registers",
    TAKES_STATES: "it receives its replicas' states from a controller",
}
_SERVES_NOTHING = frozenset({WAITS_FOR_STORE, OPENS_LOGS, READS_METADATA})


class StartProgress:
    """The phase of the start, and `done` of `total` items that it counts; 0 of 0: not known yet.

    A thread may count while another one reads: a mixed pair still shows the progress.
    """

    def __init__(self) -> None:
        self.phase = WAITS_FOR_STORE
        self.done = 0
        self.total = 0

    def enter(self, phase: str) -> None:
        self.phase, self.done, self.total = phase, 0, 0

    def count(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    @property
    def opens_logs(self) -> bool:
        """Whether the list of logs is not complete yet."""
        return self.phase in (WAITS_FOR_STORE, OPENS_LOGS)

    def rejection_reason(self, broker_id: int) -> str:
        """Returns why requests are rejected; empty: they are accepted.

        A broker that has not read the metadata would deny topics that exist, and does not know
        which commands are for a previous incarnation.
        """
        if self.phase not in _SERVES_NOTHING:
            return ""
        counted = f", {self.done:,} of {self.total:,}" if self.total else ""
        return f"broker {broker_id} is starting: {_SAID[self.phase]}{counted}"
