"""Ends the registrations of crashed brokers when their connections break. No I/O.

A crash is certain if the process's address refuses connections. Otherwise the broker's lease
decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog.state_changes.event import Cause, Detail, Kind, Stage
from tidelog_controller.control.command_dispatcher import CommandDispatcher
from tidelog_controller.core.broker_events import broker_event, fencing_event
from tidelog_controller.core.transaction_events import TransactionEvents
from tidelog_controller.state.commands import EmitEvent, Transact
from tidelog_controller.state.context import Context
from tidelog_controller.state.departures import Departures
from tidelog_controller.state.events import CRASHED, ConnectionEnded, DialOutcome
from tidelog_controller.state.mutations import RegistrationRemoval
from tidelog_controller.state.transactions import Transactions

# A live broker whose connection keeps breaking (behind a proxy, for example) is not removed more
# often than this; beyond it only its lease decides.
MAX_FAST_REMOVALS = 2
FAST_REMOVAL_WINDOW_MS = 60_000
# An unchanged condition is reported again after this time.
REPORT_AGAIN_MS = 60_000


class BrokenConnections:
    def __init__(self) -> None:
        self._removals: dict[int, deque[int]] = {}  # broker id to times of fast removals
        # The last reported incarnation and outcome of each broker, and when.
        self._reported: dict[int, tuple[int, DialOutcome, int]] = {}

    def may_remove(self, broker_id: int, now_ms: int) -> bool:
        """Whether a fast removal is allowed; if so, it is counted."""
        removals = self._removals.setdefault(broker_id, deque(maxlen=MAX_FAST_REMOVALS))
        oldest_counts = removals and now_ms - removals[0] < FAST_REMOVAL_WINDOW_MS
        if len(removals) == MAX_FAST_REMOVALS and oldest_counts:
            return False
        removals.append(now_ms)
        return True

    def is_news(self, broker_id: int, broker_epoch: int, dial: DialOutcome, now_ms: int) -> bool:
        """Whether to report it; an unreachable broker is dialled every 2 s and reported seldom."""
        epoch, before, at_ms = self._reported.get(broker_id, (0, None, 0))
        same = epoch == broker_epoch and before is dial
        if same and now_ms - at_ms < REPORT_AGAIN_MS:
            return False
        self._reported[broker_id] = (broker_epoch, dial, now_ms)
        return True


class BrokerFencing:
    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        departures: Departures,
        dispatcher: CommandDispatcher,
        transaction_events: TransactionEvents,
        emit: Callable[[EmitEvent], None],
    ) -> None:
        self._context = context
        self._transactions = transactions
        self._departures = departures
        self._dispatcher = dispatcher
        self._transaction_events = transaction_events
        self._emit = emit
        self._broken = BrokenConnections()

    def connection_ended(self, event: ConnectionEnded, now_ms: int, wall_ms: int) -> list[Transact]:
        """Ends the registration if the dial's outcome shows that the process has ended.

        The transaction compares the creation revision, so it never removes a later incarnation.
        """
        broker_id, broker_epoch, dial, detection_ms = event
        broker = self._context.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            return []
        is_news = self._broken.is_news(broker_id, broker_epoch, dial, now_ms)
        if dial not in CRASHED:
            if is_news:
                details: dict[str, Detail] = {"dial": dial.value}
                accepted = dial is DialOutcome.ACCEPTED
                why = Cause.CONNECTION_LOST if accepted else Cause.NO_ANSWER
                self._emit(broker_event(Kind.CONNECTION_LOST, broker, cause=why, details=details))
            self._dispatcher.require_all(broker_id, now_ms, Cause.CONNECTION_LOST)
            return []
        self._departures.connection_refused(broker_id, broker_epoch)
        departure = self._departures.departure_of(broker, None, wall_ms)
        removal = RegistrationRemoval(broker_id, broker_epoch, departure)
        if self._transactions.is_in_flight(removal):
            return []
        fencing = fencing_event(broker, dial.value, detection_ms, wall_ms)
        if not self._broken.may_remove(broker_id, now_ms):
            if is_news:
                # Only the broker's lease decides.
                bound = {"removals": MAX_FAST_REMOVALS, "within_ms": FAST_REMOVAL_WINDOW_MS}
                details = {**fencing.details, **bound}
                self._emit(fencing._replace(stage=Stage.IGNORED, details=details))
            return []
        command = self._transactions.begin(removal)
        self._transaction_events.fencing_requested(command.id, fencing)
        return [command]
