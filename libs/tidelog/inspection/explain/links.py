"""Which brokers reach each other, and which of them the active controller reaches, by their own
reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidelog.inspection.controller_reports import BrokerConnection
from tidelog.inspection.explain.formatting import brokers, span
from tidelog.inspection.explain.observation import name_of
from tidelog.inspection.state_reports import HeardBroker, ServiceState

# Replica fetches follow each other: a fetch or an answer within this time proves a link.
PROOF_OF_LINK_MS = 2_000
# A controller reconnects within this time to a broker that was busy.
BROKEN_MIN_MS = 2_000


class Links:
    """Links between brokers. `states`: brokers that answer.

    TCP uses a link in both directions, so that a link works if one end receives what the other
    sends.
    """

    def __init__(self, states: Sequence[ServiceState], active: ServiceState | None) -> None:
        self._heard: dict[int, Mapping[int, HeardBroker]] = {}
        for state in states:
            heard = state.broker.heard if state.broker is not None else ()
            self._heard.setdefault(state.id, _best(heard))
        self._active = active
        control = active.controller if active is not None else None
        self._connections: Mapping[int, BrokerConnection] = {
            link.broker_id: link for link in (control.connections if control else ())
        }

    def silent_ms(self, broker_id: int, leader: int) -> int | None:
        """Returns how long a leader has not answered the broker's fetches. None if it has, or if
        there are none."""
        heard = self._heard.get(broker_id, {}).get(leader)
        return heard.unanswered_ms if heard is not None and heard.unanswered_ms >= 0 else None

    def receives_from(self, one: int, other: int) -> bool:
        heard = self._heard.get(one, {}).get(other)
        return heard is not None and any(
            0 <= age <= PROOF_OF_LINK_MS for age in (heard.last_fetch_ms, heard.last_answer_ms)
        )

    def fetched_from(self, follower: int) -> list[int]:
        """Returns the brokers that have received a fetch of the follower lately."""
        return [
            leader
            for leader, heard in sorted(self._heard.items())
            if follower in heard and 0 <= heard[follower].last_fetch_ms <= PROOF_OF_LINK_MS
        ]

    def work(self, one: int, other: int) -> bool:
        return self.receives_from(one, other) or self.receives_from(other, one)

    def fail(self, one: int, other: int) -> bool:
        """Whether one of them gets no answer to its fetches, and neither receives anything."""
        silent = (self.silent_ms(one, other), self.silent_ms(other, one))
        return any(ms is not None for ms in silent) and not self.work(one, other)

    def unreached(self, broker_id: int) -> list[int]:
        """Returns brokers that answer here and that this one does not reach."""
        return [other for other in sorted(self._heard) if self.fail(broker_id, other)]

    def is_cut_off(self, broker_id: int) -> bool:
        """Whether a broker that answers exchanges nothing with any other that does, and the fault
        is on its side: the others reach each other, or the controller reaches them and not it."""
        unreached = self.unreached(broker_id)
        if not unreached or any(self.work(broker_id, other) for other in self._heard):
            return False
        others_work = any(
            self.work(one, other) for one in unreached for other in self._heard if other != one
        )
        by_controller = self.broken_ms(broker_id) is not None and any(
            map(self.is_connected, unreached)
        )
        return others_work or by_controller

    def is_connected(self, broker_id: int) -> bool:
        """Whether the active controller has a connection to it."""
        link = self._connections.get(broker_id)
        return link is not None and link.is_connected

    def broken_ms(self, broker_id: int) -> int | None:
        """Returns how long the active controller has had no connection to the broker. None if it
        has one, or does not report it."""
        link = self._connections.get(broker_id)
        return link.broken_ms if link is not None and link.broken_ms >= BROKEN_MIN_MS else None

    @property
    def connected(self) -> list[int]:
        """Brokers that the active controller reaches."""
        return sorted(filter(self.is_connected, self._connections))

    @property
    def disconnected(self) -> list[int]:
        return sorted(b for b in self._connections if self.broken_ms(b) is not None)

    def evidence(self, broker_id: int) -> Iterator[str]:
        """Yields what the broker and others report about its links, working ones last."""
        for other in sorted(self._heard):
            for one, its in ((other, broker_id), (broker_id, other)):
                ms = self.silent_ms(one, its)
                if ms is not None:
                    yield f"broker-{one} reports: broker {its} has not answered it for {span(ms)}"
        yield from self._of_controller(broker_id)
        reached = [other for other in sorted(self._heard) if self.work(broker_id, other)]
        if reached:
            yield f"it and {brokers(reached)} reach each other"

    def _of_controller(self, broker_id: int) -> Iterator[str]:
        link, ms = self._connections.get(broker_id), self.broken_ms(broker_id)
        if link is None or self._active is None:
            return
        who = f"{name_of(self._active)}, the active controller,"
        if link.is_connected:
            yield f"{who} has a connection to it"
        elif ms is not None:
            dial = f'; a plain connect to its address ended with "{link.dial}"' if link.dial else ""
            yield f"{who} has had no connection to it for {span(ms)}{dial}"


def _best(heard: Sequence[HeardBroker]) -> dict[int, HeardBroker]:
    """Returns reports by broker, with the newest times if a broker occurs several times."""
    found: dict[int, HeardBroker] = {}
    for each in heard:
        known = found.get(each.broker_id)
        if known is None:
            found[each.broker_id] = each
            continue
        found[each.broker_id] = HeardBroker(
            each.broker_id,
            _newest(known.last_fetch_ms, each.last_fetch_ms),
            _newest(known.last_answer_ms, each.last_answer_ms),
            max(known.unanswered_ms, each.unanswered_ms),
        )
    return found


def _newest(one: int, other: int) -> int:
    """Returns the lower of two ages; -1 means none."""
    return min((age for age in (one, other) if age >= 0), default=-1)
