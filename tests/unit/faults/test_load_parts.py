"""The records of a load: values, acknowledging brokers, and its course."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from faults.acknowledgers import MAX_ANSWERS, Acknowledgers, Sequenced
from faults.compose_override import clock_setting, override
from faults.kinds.disk import flip_in_first_whole_frame, flip_in_last_whole_frame
from faults.load import Load, LoadSettings, read_settings
from faults.own_clocks import broker_environment
from faults.report.worst_moment import entries_between
from faults.series import Point, Series
from faults.service_logs import fences_ignored, logged_ms
from faults.values import payload, value_of, values_of_client
from tidelog.history import (
    NO_BROKER,
    UNREADABLE_VALUE,
    HistoryWriter,
    SendEnded,
    read_history,
)
from tidelog.log_dump import dump_log
from tidelog.model import NO_OFFSET, TopicPartition
from unit.faults.segments import write_segment

SEA = TopicPartition("sea", 0)
# 2026-01-01 00:00 UTC.
BEGIN_S = 1_767_225_600.0


def test_values_of_two_clients_differ() -> None:
    first, second = (set(islice(values_of_client(n), 1_000)) for n in (1, 2))

    assert not first & second


def test_a_value_is_recovered_from_its_record() -> None:
    assert value_of(payload(7 << 32)) == 7 << 32


@pytest.mark.parametrize("record", [None, b"", b"17", payload(17)[:-1], b"x" + payload(17)[1:]])
def test_a_foreign_record_has_no_value(record: bytes | None) -> None:
    assert value_of(record) == UNREADABLE_VALUE


@pytest.mark.parametrize(
    ("base_offset", "offsets"), [(40, [40, 41, 42]), (NO_OFFSET, [NO_OFFSET] * 3)]
)
def test_a_batch_is_recorded_where_it_was_acknowledged_or_nowhere(
    base_offset: int, offsets: list[int], tmp_path: Path
) -> None:
    settings = LoadSettings("", "", "", [], {}, SEA.topic, partitions=1, rate=1)
    with HistoryWriter(tmp_path / "history") as history:
        load = Load(settings, history)
        load.invoked("producer", SEA, [7, 8, 9])
        load.acknowledged("producer", SEA, [7, 8, 9], (base_offset, 3, 1), 0)

    noted = read_history(tmp_path / "history")
    assert [one.offset for _, one in noted if isinstance(one, SendEnded)] == offsets


def batch(sequence: int) -> Sequenced:
    return Sequenced(SEA, producer_id=1, base_sequence=sequence)


def test_the_acknowledging_broker_is_recorded_for_each_batch_of_a_request() -> None:
    acknowledgers = Acknowledgers()
    acknowledgers.acknowledged([batch(0)], 3, 100, broker_id=1)
    acknowledgers.acknowledged([batch(10), batch(20)], 3, 110, broker_id=2)

    assert [acknowledgers.of(SEA, 3, offset) for offset in (100, 110, 120)] == [1, 2, 2]
    assert acknowledgers.of(SEA, 4, 100) == NO_BROKER


def test_a_resend_is_not_a_first_attempt() -> None:
    acknowledgers = Acknowledgers()

    assert acknowledgers.sent([batch(0)])
    assert not acknowledgers.sent([batch(0), batch(10)])


def test_answers_are_bounded() -> None:
    acknowledgers = Acknowledgers()
    for offset in range(MAX_ANSWERS + 5):
        acknowledgers.acknowledged([batch(offset)], 0, offset, broker_id=1)

    assert acknowledgers.of(SEA, 0, 4) == NO_BROKER
    assert acknowledgers.of(SEA, 0, 5) == 1


def test_seconds_without_an_acknowledgement_are_in_the_series() -> None:
    series = Series()
    series.acknowledged(1_200, 10, 5)
    series.acknowledged(1_800, 10, 9)
    series.acknowledged(3_100, 10, 7)

    assert series.points() == [Point(1, 20, 9, 9), Point(2, 0, 0, 0), Point(3, 10, 7, 7)]


def test_settings_round_trip(tmp_path: Path) -> None:
    settings = LoadSettings(
        "h", "s", "r", ["b:1"], {"b:1": "127.0.0.1:2"}, "sea", 6, 1_200, producers=2
    )
    settings.write(tmp_path / "load.json")

    assert read_settings(tmp_path / "load.json") == settings
    assert settings.records_per_send == 8


def line(kind: str, time: str = "2026-01-01T00:00:00.500Z") -> bytes:
    return json.dumps({"time": time, "event": "state_change", "kind": kind}).encode()


def test_state_changes_of_a_kind_are_found_and_torn_lines_are_skipped() -> None:
    lines = [line("store_lost"), line("store_back"), b"store_lost", line("store_lost")[:-3]]

    assert logged_ms(lines, "store_lost") == [round(BEGIN_S * 1000) + 500]


def test_state_changes_of_other_topics_are_ignored() -> None:
    document = json.loads(line("truncation"))
    lines = [json.dumps(document | {"topic": topic}).encode() for topic in ("sea", "lake", "lake")]

    assert len(logged_ms(lines, "truncation", "sea")) == 1
    assert len(logged_ms(lines, "truncation")) == 3


@pytest.mark.parametrize(
    ("stage", "details", "found"),
    [
        (
            "ignored",
            {"removals": 2, "within_ms": 60_000},
            [(round(BEGIN_S * 1000) + 500, "broker-3")],
        ),
        ("ignored", {}, []),
        ("completed", {"removals": 2}, []),
    ],
)
def test_a_fence_is_ignored_where_the_controller_reports_removals(
    stage: str, details: dict[str, int], found: list[tuple[int, str]]
) -> None:
    document = json.loads(line("broker_fenced"))
    document |= {"stage": stage, "broker": 3, "details": details}

    assert fences_ignored([json.dumps(document).encode()]) == found


def test_the_worst_moment_is_listed_in_chronological_order() -> None:
    logs = {
        "broker-1": [line("election", "2026-01-01T00:00:02Z"), b"no JSON"],
        "broker-2": [line("isr_shrink"), line("late", "2026-01-01T00:01:00Z")],
    }
    moments, left_out = entries_between(logs, 1_767_225_600.0, 1_767_225_602.0, SEA)

    assert [(one.service, one.what) for one in moments] == [
        ("clients", "last_write"),
        ("broker-2", "isr_shrink"),
        ("broker-1", "election"),
        ("clients", "writes_resume"),
    ]
    assert left_out == 0


@pytest.mark.parametrize(
    ("fields", "is_listed"),
    [
        ({"topic": "sea", "partition": 0}, True),
        ({"topic": "sea"}, True),
        ({}, True),
        ({"partition": "sea/0"}, True),
        ({"topic": "sea", "partition": 1}, False),
        ({"topic": "lake", "partition": 0}, False),
        ({"partition": "sea/1"}, False),
    ],
)
def test_the_worst_moment_lists_events_of_its_partition_and_of_none(
    fields: dict[str, object], is_listed: bool
) -> None:
    document = json.loads(line("election")) | fields
    moments, _ = entries_between(
        {"broker-1": [json.dumps(document).encode()]}, BEGIN_S, BEGIN_S + 1, SEA
    )

    assert ("election" in [one.what for one in moments]) is is_listed


def test_the_end_of_the_worst_moment_is_listed_however_many_events_precede_it() -> None:
    times = [f"2026-01-01T00:00:00.{number:03}Z" for number in range(999)]
    lines = [line("isr_shrink", time) for time in times]
    lines.append(line("election", "2026-01-01T00:00:01.900Z"))

    moments, left_out = entries_between({"broker-1": lines}, BEGIN_S, BEGIN_S + 2, SEA)

    assert [one.what for one in moments][-2:] == ["election", "writes_resume"]
    assert moments[0].what == "last_write"
    assert moments[1].at_s == BEGIN_S
    assert (len(moments), left_out) == (402, 600)


def test_composed_services_stay_down_and_brokers_have_separate_disks() -> None:
    text = override({"broker-1": Path("/disk")}, ["etcd-1", "broker-1"], None, "")
    services = json.loads(text)["services"]

    assert [service["restart"] for service in services.values()] == ["no", "no"]
    assert "volumes" not in services["etcd-1"]
    assert services["broker-1"]["volumes"] == ["/disk:/var/lib/tidelog"]


def test_brokers_run_as_the_owner_of_their_directories() -> None:
    text = override({"broker-1": Path("/d")}, ["etcd-1", "broker-1"], None, "", user="7:8")
    services = json.loads(text)["services"]

    assert services["broker-1"]["user"] == "7:8"
    assert "user" not in services["etcd-1"]


def test_composed_services_keep_their_addresses_across_restarts() -> None:
    document = json.loads(override({}, ["etcd-1", "broker-1"], None, ""))
    subnet = ipaddress.ip_network(document["networks"]["default"]["ipam"]["config"][0]["subnet"])
    given = [s["networks"]["default"]["ipv4_address"] for s in document["services"].values()]

    assert len(set(given)) == 2
    assert all(ipaddress.ip_address(address) in subnet for address in given)


def test_clock_offsets_are_files_that_every_broker_reads() -> None:
    text = override({"broker-1": Path("/d")}, ["broker-1"], {"broker-1": Path("/c")}, "b:faketime")
    broker = json.loads(text)["services"]["broker-1"]

    assert broker["image"] == "b:faketime"
    assert broker["volumes"] == ["/d:/var/lib/tidelog", "/c:/faketime:ro"]
    assert clock_setting(3_600) == "+3600\n"


@pytest.mark.parametrize(
    ("flip", "offset"), [(flip_in_last_whole_frame, 37), (flip_in_first_whole_frame, 0)]
)
def test_a_flipped_bit_is_detected_by_the_checksum(
    tmp_path: Path, flip: Callable[[Path], str], offset: int
) -> None:
    replica = tmp_path / "sea-0.id"
    write_segment(replica, 40)
    assert [info for _, info in dump_log(replica) if info.fault] == []

    where = flip(replica)

    assert [info for _, info in dump_log(replica) if info.fault]
    assert where.endswith(f"offset {offset}")


def test_a_local_broker_has_its_own_clock_file(tmp_path: Path) -> None:
    library = Path("/usr/lib/x/faketime/libfaketime.so.1")
    clock = tmp_path / "broker-2" / "offset"
    clock.parent.mkdir()
    clock.write_text(clock_setting(0))
    environment = broker_environment(tmp_path, library, Path("/config/broker-2.toml"))
    without = broker_environment(tmp_path, library, Path("/config/broker-3.toml"))

    assert environment["FAKETIME_TIMESTAMP_FILE"] == str(clock)
    assert environment["LD_PRELOAD"] == str(library)
    assert "FAKETIME_TIMESTAMP_FILE" not in without
    assert without.get("LD_PRELOAD") != str(library)
