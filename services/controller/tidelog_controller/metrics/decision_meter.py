"""Metrics of the controller's decisions by outcome and cause, and of the time of admin requests.

`DecisionMeter` is a sink of `StateChangeLog`; `MeteredAdmin` wraps an `Admin`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, get_args

from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import AdminRequest
from tidelog_runtime.telemetry.metrics import controller_catalogue as catalogue
from tidelog_runtime.telemetry.metrics.controller_catalogue import CLEAN, NO_LEADER_ELECTED, UNCLEAN
from tidelog_runtime.telemetry.metrics.recording import Counts, HistogramFamily
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot

_OUTCOMES = {
    Kind.ELECTION: CLEAN,
    Kind.UNCLEAN_ELECTION: UNCLEAN,
    Kind.LEADER_LOST: NO_LEADER_ELECTED,
}
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def request_name(kind: type) -> str:
    """Returns the name of a request as in `create_topic`; all reading requests share one name."""
    name = _CAPITAL.sub("_", kind.__name__).lower()
    return name if name in catalogue.ADMIN_REQUESTS else catalogue.ADMIN_QUERIES


# By type, for all admin requests.
REQUEST_NAMES: dict[type, str] = {kind: request_name(kind) for kind in get_args(AdminRequest)}


class DecisionMeter:
    """`seconds`: a clock of which only differences are used."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self._events = HistogramFamily(catalogue.EVENT_DURATION)
        self._elections = Counts(catalogue.ELECTIONS)
        self._unclean = Counts(catalogue.UNCLEAN_ELECTIONS)
        self._shrinks = Counts(catalogue.CONTROLLER_ISR_SHRINKS)
        self._departures = Counts(catalogue.DEPARTURES)
        self._overdue = Counts(catalogue.COMMANDS_OVERDUE)
        self._reigns = Counts(catalogue.CONTROLLER_ELECTIONS)
        self._controller_epoch = 0
        self.requests = HistogramFamily(catalogue.ADMIN_DURATION)
        self.refused = Counts(catalogue.ADMIN_REJECTED)

    def take(self, change: StateChange) -> None:
        """Counts a decision once the store has committed it."""
        if change.stage is not Stage.COMPLETED:
            return
        kind, cause = change.kind, change.cause.value
        outcome = _OUTCOMES.get(kind)
        if outcome is not None:
            self._elections.add(outcome, cause)
        match kind:
            case Kind.UNCLEAN_ELECTION:
                self._unclean.add()
            case Kind.ISR_SHRINK:
                self._shrinks.add(cause)
            case Kind.BROKER_LEFT:
                self._departures.add(cause)
            case Kind.COMMAND_OVERDUE:
                self._overdue.add()
            case Kind.CONTROLLER_ELECTED:
                self._reigns.add()
                self._controller_epoch = change.controller_epoch
            case _:
                pass

    # The time that the core takes for one event.

    def begin(self) -> float:
        return self.seconds()

    def end(self, began: float) -> None:
        self._events.of().observe(self.seconds() - began)

    def tell(self, snapshot: MetricsSnapshot) -> None:
        for counts in (
            self._elections,
            self._unclean,
            self._shrinks,
            self._departures,
            self._overdue,
            self._reigns,
            self.refused,
        ):
            snapshot.set_counters(counts)
        snapshot.set_histograms(self._events)
        snapshot.set_histograms(self.requests)
        snapshot.set(catalogue.CONTROLLER_EPOCH, self._controller_epoch)


class Admin(Protocol):
    async def submit(self, request: AdminRequest) -> AdminReply: ...


class MeteredAdmin:
    def __init__(self, admin: Admin, meter: DecisionMeter) -> None:
        self._admin = admin
        self._meter = meter

    async def submit(self, request: AdminRequest) -> AdminReply:
        name = REQUEST_NAMES[type(request)]
        began = self._meter.seconds()
        reply = await self._admin.submit(request)
        self._meter.requests.of(name, "").observe(self._meter.seconds() - began)
        if reply.error is not None:
            self._meter.refused.add(name, reply.error.code.name)
        return reply
