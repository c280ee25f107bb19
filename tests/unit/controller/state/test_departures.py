"""Departures of brokers, and the rate at which broken connections are published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.state_changes.event import Cause
from tidelog_controller.core.broker_fencing import REPORT_AGAIN_MS, BrokenConnections
from tidelog_controller.state import departures
from tidelog_controller.state.crash_series import MAX_CRASH_GAP_MS, CrashSeries
from tidelog_controller.state.departures import Departures, crashes_of
from tidelog_controller.state.events import DialOutcome
from tidelog_controller.state.metadata_records import Broker
from tidelog_runtime.metadata.schema import (
    RUNNING,
    STOPPING,
    BrokerRegistration,
    Departure,
    decode_departure,
    encode_departure,
)


def broker(broker_id: int, broker_epoch: int, state: str = RUNNING) -> Broker:
    return Broker(
        broker_id, BrokerRegistration(f"b:{broker_id}", "", "uuid", state, 0, 0), broker_epoch
    )


def test_a_registration_that_ends_by_itself_is_an_ended_lease() -> None:
    left = Departures().record(broker(1, 10), None, 5)
    assert left == Departure(10, Cause.BROKER_LEASE_ENDED, 5, "b:1")


def test_a_refused_connection_makes_only_that_incarnations_end_a_crash() -> None:
    known = Departures()
    known.connection_refused(1, 10)
    assert known.record(broker(1, 10), None, 5).cause is Cause.BROKER_CRASHED
    assert known.record(broker(1, 11), None, 9).cause is Cause.BROKER_LEASE_ENDED


def test_a_stopping_broker_that_leaves_has_stopped() -> None:
    known = Departures()
    known.connection_refused(1, 10)
    assert known.record(broker(1, 10, STOPPING), None, 5).cause is Cause.BROKER_STOPPED


def test_a_broker_whose_next_incarnation_is_seen_at_once_has_restarted() -> None:
    assert Departures().record(broker(1, 10), broker(1, 12), 5).cause is Cause.BROKER_RESTARTED


def test_the_oldest_departure_beyond_the_limit_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(departures, "MAX_DEPARTURES", 2)
    known = Departures()
    for at, broker_id in enumerate((1, 2, 1, 3)):
        known.record(broker(broker_id, 10 + at), None, at)
    assert list(known.last) == [1, 3]
    assert dict(known.unrecorded(9)).get(2, "kept") is None


def test_a_stored_departure_is_not_recorded_again() -> None:
    known = Departures()
    left = known.record(broker(1, 10), None, 5)
    known.record(broker(2, 11), None, 5)
    assert known.unrecorded(1) == ((1, left),)
    known.recorded(1, left)
    assert [broker_id for broker_id, _ in known.unrecorded(9)] == [2]


def test_a_departure_stored_with_the_end_of_a_registration_applies() -> None:
    known = Departures()
    known.connection_refused(1, 10)
    kept = known.departure_of(broker(1, 10), None, 5)
    known.recorded(1, kept)
    assert known.record(broker(1, 10), None, 7) == kept
    assert known.unrecorded(9) == ()


def test_a_late_record_of_an_older_incarnation_does_not_hide_a_newer_one() -> None:
    known = Departures()
    newer = known.record(broker(1, 20), None, 9)
    known.recorded(1, newer._replace(broker_epoch=10))
    assert known.last == {1: newer}
    assert known.unrecorded(9) == ((1, newer),)


def test_a_departure_deleted_from_the_store_is_forgotten() -> None:
    known = Departures()
    known.recorded(1, known.departure_of(broker(1, 10), None, 5))
    known.recorded(1, None)
    assert known.last == {}


def test_a_broken_connection_is_published_when_its_outcome_changes_or_after_a_while() -> None:
    known = BrokenConnections()
    no_answer, accepted = DialOutcome.NO_ANSWER, DialOutcome.ACCEPTED
    published = [
        known.is_news(1, 10, no_answer, 0),
        known.is_news(1, 10, no_answer, 2_000),
        known.is_news(1, 10, accepted, 4_000),
        known.is_news(1, 11, accepted, 5_000),
        known.is_news(1, 11, accepted, 5_000 + REPORT_AGAIN_MS),
    ]
    assert published == [True, False, True, True, True]


def test_a_broker_with_an_advertised_address_leaves_that_address_too() -> None:
    registered = broker(1, 10).registration
    outside = replace(registered, external_address="127.0.0.1:7501")
    left = Departures().record(Broker(1, outside, 10), None, 5)
    assert (left.address, left.external_address) == ("b:1", "127.0.0.1:7501")


def crash(known: Departures, broker_epoch: int, at_ms: int) -> Departure:
    known.connection_refused(1, broker_epoch)
    return known.record(broker(1, broker_epoch), None, at_ms)


def test_crashes_that_follow_each_other_are_counted_as_one_series() -> None:
    known = Departures()
    for count in range(5):
        left = crash(known, 10 + count, 1_000 + 10_000 * count)
    assert crashes_of(left) == CrashSeries(5, since_ms=1_000, last_ms=41_000)


def test_a_process_that_is_replaced_before_it_was_missed_has_crashed_too() -> None:
    known = Departures()
    crash(known, 10, 1_000)
    left = known.record(broker(1, 11), broker(1, 12), 2_000)
    assert crashes_of(left).length == 2


def test_a_stop_ends_a_series_of_crashes_and_so_does_a_long_time_without_one() -> None:
    known = Departures()
    crash(known, 10, 1_000)
    assert crashes_of(crash(known, 11, 1_001 + MAX_CRASH_GAP_MS)).length == 1
    stopped = known.record(broker(1, 12, STOPPING), None, 130_000)
    assert crashes_of(stopped) == CrashSeries()


def test_a_series_of_crashes_outlives_the_controller_that_counted_it() -> None:
    earlier, later = Departures(), Departures()
    crash(earlier, 10, 1_000)
    later.recorded(1, decode_departure(encode_departure(crash(earlier, 11, 2_000))))
    assert crashes_of(crash(later, 12, 3_000)) == CrashSeries(3, since_ms=1_000, last_ms=3_000)


def test_an_expired_lease_neither_adds_to_a_series_of_crashes_nor_ends_it() -> None:
    known = Departures()
    first = crash(known, 10, 1_000)
    assert crashes_of(known.record(broker(1, 11), None, 9_000)) == crashes_of(first)
