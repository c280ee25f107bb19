"""The order of one partition: which values clients saw at which offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tidelog.history.anomalies import Anomaly, PartitionFindings, Reference
from tidelog.history.client_operations import UNREADABLE_VALUE, Outcome, PollEnded, Send
from tidelog.history.evidence import PollSource, Sighting, send_reference, sighting_reference
from tidelog.history.loss_marks import LossMarks
from tidelog.history.skipped_offsets import KnownRecord
from tidelog.model import NO_OFFSET

# A value at an offset: leader epoch, offset, and the operation that shows it.
_Place = tuple[int, int, Reference]


class RecordOrder:
    """Values and offsets of one partition. `first` holds where each value was polled first.

    Almost always a value has one offset and an offset one value; exceptions are kept apart.
    """

    def __init__(self, findings: PartitionFindings, marks: LossMarks) -> None:
        self._findings = findings
        self._marks = marks
        self.first: dict[int, Sighting] = {}
        self._value_at: dict[int, int] = {}
        self._other_places: dict[int, list[Sighting]] = {}
        self._other_values: dict[int, set[int]] = {}
        self._unreadable: list[Sighting] = []

    def add_poll(self, poll: PollEnded, source: PollSource) -> None:
        self.add_records(zip(poll.offsets, poll.values, poll.leader_epochs, strict=True), source)

    def add_records(self, records: Iterable[tuple[int, int, int]], source: PollSource) -> None:
        """`records`: offset, value and leader epoch of each."""
        first, value_at = self.first, self._value_at
        for offset, value, epoch in records:
            if value == UNREADABLE_VALUE:
                self._unreadable.append(Sighting(offset, epoch, source))
                continue
            seen = first.get(value)
            if seen is None:
                first[value] = Sighting(offset, epoch, source)
            elif seen.offset != offset:
                self._add_place(value, Sighting(offset, epoch, source))
            if value_at.setdefault(offset, value) != value:
                self._other_values.setdefault(offset, set()).add(value)

    def _add_place(self, value: int, sighting: Sighting) -> None:
        places = self._other_places.setdefault(value, [])
        if all(place.offset != sighting.offset for place in places):
            places.append(sighting)

    def check_offsets(self, sends: dict[int, Send]) -> None:
        """`sends`, by value: all sends of this partition at these offsets."""
        for value, send in sends.items():
            if _is_placed(send) and self._value_at.setdefault(send.offset, value) != value:
                self._other_values.setdefault(send.offset, set()).add(value)
        for offset, more in sorted(self._other_values.items()):
            self._check_offset(offset, (self._value_at[offset], *sorted(more)), sends)

    def check_values(self, sends: dict[int, Send]) -> None:
        """`sends`, by value: all sends of this partition with these values."""
        acknowledged_elsewhere = {
            value
            for value, send in sends.items()
            if _is_placed(send)
            and (seen := self.first.get(value)) is not None
            and seen.offset != send.offset
        }
        for value in sorted(self._other_places.keys() | acknowledged_elsewhere):
            self._check_value(value, sends)
        self._find_aborted_and_phantom(sends)

    def known_in(
        self, holds: Callable[[int], bool], sends: Iterable[Send]
    ) -> Iterator[KnownRecord]:
        """Yields the known records at the offsets for which `holds` is true."""
        for value, sighting in self._sightings():
            if holds(sighting.offset):
                shown_by = sighting_reference(value, sighting)
                yield KnownRecord(sighting.offset, sighting.leader_epoch, shown_by)
        for send in sends:
            if _is_placed(send) and holds(send.offset):
                yield KnownRecord(send.offset, send.leader_epoch, send_reference(send))

    def _sightings(self) -> Iterator[tuple[int, Sighting]]:
        yield from self.first.items()
        for value, places in self._other_places.items():
            yield from ((value, sighting) for sighting in places)
        yield from ((UNREADABLE_VALUE, sighting) for sighting in self._unreadable)

    def _places(self, value: int, sends: dict[int, Send]) -> list[_Place]:
        sightings = [self.first[value]] if value in self.first else []
        places: list[_Place] = [
            (sighting.leader_epoch, sighting.offset, sighting_reference(value, sighting))
            for sighting in sightings + self._other_places.get(value, [])
        ]
        send = sends.get(value)
        if send is not None and _is_placed(send):
            places.append((send.leader_epoch, send.offset, send_reference(send)))
        return places

    def _check_offset(self, offset: int, values: Sequence[int], sends: dict[int, Send]) -> None:
        shown = {
            value: [place for place in self._places(value, sends) if place[1] == offset]
            for value in values
        }
        self._findings.add(
            Anomaly.INCONSISTENT_OFFSETS,
            f"offset {offset} holds values {', '.join(map(str, values))}",
            [reference for places in shown.values() for _, _, reference in places],
            self._excuse(list(shown.values())),
        )

    def _check_value(self, value: int, sends: dict[int, Send]) -> None:
        by_offset: dict[int, list[_Place]] = {}
        for place in self._places(value, sends):
            by_offset.setdefault(place[1], []).append(place)
        self._findings.add(
            Anomaly.DUPLICATE,
            f"value {value} at offsets {', '.join(map(str, sorted(by_offset)))}",
            [reference for places in by_offset.values() for _, _, reference in places],
            self._excuse(list(by_offset.values())),
        )

    def _excuse(self, alternatives: list[list[_Place]]) -> str | None:
        """Returns a reason if the marks give up all alternatives but one at most."""
        if not self._marks:
            return None
        left, reason = 0, None
        for places in alternatives:
            reasons = [self._marks.reason(epoch, offset) for epoch, offset, _ in places]
            if None in reasons:
                left += 1
            else:
                reason = reason or reasons[0]
        return reason if left <= 1 else None

    def _find_aborted_and_phantom(self, sends: dict[int, Send]) -> None:
        for value, sighting in self.first.items():
            send = sends.get(value)
            if send is None:
                self._phantom(f"value {value}", value, sighting)
            elif send.outcome is Outcome.FAIL:
                self._aborted(send, sighting)
        for sighting in self._unreadable:
            self._phantom("a record without a value", UNREADABLE_VALUE, sighting)

    def _aborted(self, send: Send, sighting: Sighting) -> None:
        self._findings.add(
            Anomaly.ABORTED_READ,
            f"value {send.value} of a failed send at offset {sighting.offset}",
            (send_reference(send), sighting_reference(send.value, sighting)),
        )

    def _phantom(self, what: str, value: int, sighting: Sighting) -> None:
        self._findings.add(
            Anomaly.PHANTOM_READ,
            f"{what} at offset {sighting.offset} was not sent to this partition",
            (sighting_reference(value, sighting),),
        )


def _is_placed(send: Send) -> bool:
    return send.outcome is Outcome.OK and send.offset != NO_OFFSET
