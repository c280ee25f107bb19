"""The list of controllers, from any watch."""

from __future__ import annotations

from tidelog.inspection.state_reports import MissingController, RegisteredController
from tidelog.state_changes.event import Cause, Kind
from tidelog_controller.shell.controller_roster import ControllerRoster
from tidelog_controller.state.crash_series import MAX_CRASH_GAP_MS
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.controller_records import (
    MISSING_FOR_MS,
    KnownController,
    decode_known_controller,
    encode_known_controller,
)
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import ControllerProcess, encode
from tidelog_runtime.metadata.store import Changed, KeyValue, Snapshot
from tidelog_runtime.telemetry.state_change_log import Filter, StateChangeLog

KEYS = Keys("test")
ONE, TWO = KEYS.controller_process(1), KEYS.controller_process(2)


def item(key: str, revision: int, started_at_ms: int = 5) -> KeyValue:
    value = encode(ControllerProcess(f"host:{key[-1]}", started_at_ms))
    return KeyValue(key, value, revision, revision)


def snapshot(revision: int, *items: KeyValue) -> Snapshot:
    return Snapshot(KEYS.controller, revision, {held.key: held for held in items})


class WatchedRoster:
    """A roster and the events that it publishes."""

    def __init__(self) -> None:
        self._log = StateChangeLog("controller-1", SystemClock())
        self.roster = ControllerRoster(KEYS, self._log)

    def put(self, held: KeyValue) -> None:
        self.roster.apply([Changed(held.key, held, held.mod_revision)])

    def ids(self) -> list[int]:
        return [controller.controller_id for controller in self.roster.controllers]

    def events(self) -> list[tuple[Kind, object, int]]:
        recent = self._log.recent(Filter())
        return [
            (watched.kind, watched.details["controller"], watched.revision) for watched in recent
        ]


def test_controllers_found_at_the_start_are_listed_without_events() -> None:
    watched = WatchedRoster()
    watched.roster.load(snapshot(9, item(TWO, 4), item(ONE, 7)))
    assert watched.roster.controllers == (
        RegisteredController(1, "host:1", 5),
        RegisteredController(2, "host:2", 5),
    )
    assert watched.events() == []


def test_registrations_and_departures_are_published_with_the_revision() -> None:
    watched = WatchedRoster()
    watched.roster.load(snapshot(9, item(ONE, 7)))
    watched.put(item(TWO, 12))
    watched.roster.apply([Changed(ONE, None, 15)])
    assert watched.ids() == [2]
    assert watched.events() == [(Kind.CONTROLLER_JOINED, 2, 12), (Kind.CONTROLLER_LEFT, 1, 15)]


def test_changes_between_two_watches_are_published_once() -> None:
    watched = WatchedRoster()
    watched.roster.load(snapshot(9, item(ONE, 7)))
    watched.roster.load(snapshot(20, item(TWO, 12)))
    watched.roster.load(snapshot(21, item(TWO, 12)))
    assert watched.events() == [(Kind.CONTROLLER_LEFT, 1, 20), (Kind.CONTROLLER_JOINED, 2, 12)]


def test_a_new_incarnation_within_the_lease_of_the_last_is_published() -> None:
    watched = WatchedRoster()
    watched.roster.load(snapshot(9, item(ONE, 7)))
    watched.put(item(ONE, 12, started_at_ms=99))
    assert watched.events() == [(Kind.CONTROLLER_JOINED, 1, 12)]
    assert watched.roster.controllers[0].started_at_ms == 99


def test_other_keys_and_malformed_registrations_are_ignored() -> None:
    watched = WatchedRoster()
    watched.roster.load(snapshot(9, KeyValue(KEYS.controller, b"{}", 1, 1)))
    broken = [KeyValue(ONE, b"{not json", 12, 12), KeyValue(KEYS.broker(1), b"{}", 13, 13)]
    odd = KeyValue(f"{KEYS.controller_processes}x", b"{}", 14, 14)
    for held in (*broken, odd):
        watched.put(held)
    watched.roster.apply([Changed(odd.key, None, 15)])
    assert (watched.ids(), watched.events()) == ([], [])


def test_the_end_of_a_registration_is_published_with_its_cause() -> None:
    log = StateChangeLog("controller-1", SystemClock())
    roster = ControllerRoster(KEYS, log)
    roster.load(snapshot(9, item(ONE, 7)))
    roster.apply([Changed(ONE, None, 15)])
    (left,) = log.recent(Filter())
    assert left.cause is Cause.REGISTRATION_ENDED
    assert left.details["address"] == "host:1"


def past(
    controller_id: int, revision: int, seen_at_ms: int = 100, stopped_at_ms: int = 0
) -> KeyValue:
    key = KEYS.known_controller(controller_id)
    value = encode_known_controller(KnownController("host:2", seen_at_ms, stopped_at_ms))
    return KeyValue(key, value, revision, revision)


def test_a_known_controller_that_is_not_registered_is_missing() -> None:
    watched = WatchedRoster()
    watched.roster.load(snapshot(9, item(ONE, 4), past(1, 4), item(TWO, 5), past(2, 5)))
    assert watched.roster.missing(100) == ()
    watched.put(past(2, 12, stopped_at_ms=90))
    watched.roster.apply([Changed(TWO, None, 13)])
    assert watched.roster.missing(100) == (MissingController(2, "host:2", 100, 90),)


def test_a_controller_that_has_not_run_for_long_counts_as_decommissioned() -> None:
    watched = WatchedRoster()
    watched.roster.load(snapshot(9, item(ONE, 4), past(2, 5)))
    assert len(watched.roster.missing(100 + MISSING_FOR_MS)) == 1
    assert watched.roster.missing(101 + MISSING_FOR_MS) == ()


def test_malformed_keys_under_known_controllers_are_skipped() -> None:
    watched = WatchedRoster()
    odd = KeyValue(KEYS.known_controllers + "x", b"{}", 5, 5)
    broken = KeyValue(KEYS.known_controller(2), b"[]", 5, 5)
    watched.roster.load(snapshot(9, odd, broken))
    assert watched.roster.missing(100) == ()


def test_the_format_of_the_previous_release_is_understood() -> None:
    old = b'{"address":"host:2","seen_at_ms":100,"stopped_at_ms":90}'
    assert decode_known_controller(old) == KnownController("host:2", 100, 90)
    later = b'{"address":"host:2","seen_at_ms":100,"of_a_later_release":1}'
    assert decode_known_controller(later) == KnownController("host:2", 100)


def test_controllers_in_a_series_of_crashes_are_reported_until_it_is_over() -> None:
    roster = WatchedRoster().roster
    known = KnownController(
        "host:2", 90_000, crashes=4, crashing_since_ms=50_000, crashed_at_ms=90_000
    )
    key = KEYS.known_controller(2)
    value = KeyValue(key, encode_known_controller(known), 3, 3)
    roster.load(Snapshot(KEYS.controller, 3, {key: value}))
    [crashes] = roster.crashes(95_000)
    assert (crashes.role, crashes.id, crashes.count) == ("controller", 2, 4)
    assert (crashes.since_ms, crashes.last_ms) == (45_000, 5_000)
    assert list(roster.crashes(90_001 + MAX_CRASH_GAP_MS)) == []
