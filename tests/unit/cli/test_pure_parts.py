"""Parsing and formatting, without a cluster."""

from __future__ import annotations

import doctest
import json
from types import ModuleType

import pytest

from tidelog.cli import (
    exit_status,
    lines,
    output,
    positions,
    trace_targets,
    trace_view,
)
from tidelog.cli.exit_status import (
    ClusterUnreachableError,
    ExitStatus,
    TimedOutError,
    UsageError,
    status_of,
)
from tidelog.cli.lines import Line, LineError, LineRecord, LineSplitter, to_record
from tidelog.cli.operating import command_options, operation_view, targets
from tidelog.cli.partition_health import HealthCounts, partition_health
from tidelog.cli.positions import AtOffset, AtTime, Position, parse_position
from tidelog.cli.produce_tally import MAX_NAMED_FAILURES, ProduceTally, UnsentLines
from tidelog.cli.record_format import RecordFormat, format_records
from tidelog.cli.topics import listing, settings
from tidelog.client.descriptions import PartitionDescription, TopicDescription
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import OffsetPosition
from tidelog.rpc.status import UnreachableError
from unit.cli.conftest import record

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    "module",
    [
        exit_status,
        lines,
        listing,
        command_options,
        operation_view,
        output,
        positions,
        settings,
        targets,
        trace_targets,
        trace_view,
    ],
)
def test_examples_in_docstrings_hold(module: ModuleType) -> None:
    tried = doctest.testmod(module)
    assert tried.attempted
    assert not tried.failed


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", OffsetPosition.EARLIEST),
        ("end", OffsetPosition.LATEST),
        ("0", AtOffset(0)),
        ("-2h", AtTime(8 * HOUR_MS)),
        ("time:-90s", AtTime(10 * HOUR_MS - 90_000)),
        ("-99999999999d", AtTime(0)),
        ("time:1970-01-01T02:00:00+01:00", AtTime(HOUR_MS)),
        ("time:1970-01-01T00:00:01.500Z", AtTime(1500)),
    ],
)
def test_a_position_is_parsed(text: str, position: Position) -> None:
    assert parse_position(text, now_ms=10 * HOUR_MS) == position


@pytest.mark.parametrize("text", ["", "-5", "-5w", "start", "1.5", "²", "5m", "9" * 40])
def test_an_invalid_position_is_rejected_with_valid_forms(text: str) -> None:
    with pytest.raises(ValueError, match="beginning, end, an offset"):
        parse_position(text, now_ms=0)


def test_an_invalid_time_is_rejected_with_valid_forms() -> None:
    with pytest.raises(ValueError, match="time:2026-01-31T08:30:00Z"):
        parse_position("time:yesterday", now_ms=0)


def test_lines_are_split_across_chunks() -> None:
    splitter = LineSplitter()
    found = [line for chunk in (b"eb", b"b\nfl", b"", b"ow\n\nn") for line in splitter.feed(chunk)]
    found += splitter.end()
    assert found == [(1, b"ebb"), (2, b"flow"), (3, b""), (4, b"n")]


def test_a_trailing_newline_makes_no_empty_line() -> None:
    splitter = LineSplitter()
    assert [*splitter.feed(b"ebb\n"), *splitter.end()] == [(1, b"ebb")]


def test_a_too_long_line_is_dropped_and_the_next_is_intact() -> None:
    splitter = LineSplitter(max_line_bytes=4)
    found = [
        line for chunk in (b"123", b"45", b"6\n1234\n", b"12345") for line in splitter.feed(chunk)
    ]
    assert [*found, *splitter.end()] == [(1, None), (2, b"1234"), (3, None)]


def test_the_first_separator_ends_the_key() -> None:
    assert to_record(Line(1, b"a::b::c"), b"::") == LineRecord(b"a", b"b::c")
    assert to_record(Line(1, b":b"), b":") == LineRecord(b"", b"b")


def test_without_a_separator_option_the_line_is_the_value() -> None:
    assert to_record(Line(1, b"a:b"), None) == LineRecord(None, b"a:b")


def test_a_line_without_the_separator_is_no_record() -> None:
    with pytest.raises(LineError, match="has no ':'"):
        to_record(Line(1, b"ab"), b":")


def test_values_are_written_one_a_line_or_raw() -> None:
    records = [record(b"ebb", key=b"k"), record(None), record(b"flow")]
    assert format_records(records, RecordFormat.VALUE) == b"ebb\n\nflow\n"
    assert format_records(records, RecordFormat.VALUE, b"\t") == b"k\tebb\n\t\n\tflow\n"
    assert format_records(records, RecordFormat.RAW) == b"ebbflow"


def test_json_marks_base64_bytes() -> None:
    written = format_records([record(b"\xff\x00", key="Flut ⇈".encode())], RecordFormat.JSON)
    document = json.loads(written)
    assert document["key"] == "Flut ⇈"
    assert document["value"] == "/wA="
    assert document["value_encoding"] == "base64"
    assert document["timestamp"] == "2023-11-14T22:13:20.000Z"
    assert "key_encoding" not in document


def test_a_null_value_is_null_in_json() -> None:
    assert json.loads(format_records([record(None)], RecordFormat.JSON))["value"] is None


@pytest.mark.parametrize(
    ("shown", "value"),
    [
        ("a\\tb", b"a\tb"),
        ("b'\\x1b[31m'", b"\x1b[31m"),
        ("x" * 80 + "… (5,000 bytes)", b"x" * 5000),
    ],
)
def test_control_characters_are_escaped(shown: str, value: bytes) -> None:
    assert output.shown_bytes(value) == shown


def test_text_cut_within_a_character_is_shown_as_text() -> None:
    assert output.shown_bytes("⇈".encode() * 1000).startswith("⇈" * 80 + "…")


def chained() -> TidelogError:
    error = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "no broker answered")
    error.__cause__ = UnreachableError("any broker", "refused")
    return error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("x"), ExitStatus.USAGE),
        (ClusterUnreachableError("x"), ExitStatus.UNREACHABLE),
        (UnreachableError("127.0.0.1:1", "refused"), ExitStatus.UNREACHABLE),
        (chained(), ExitStatus.UNREACHABLE),
        (TidelogError(ErrorCode.REQUEST_TIMED_OUT, "x"), ExitStatus.TIMED_OUT),
        (TidelogError(ErrorCode.LEADER_CHANGED, "x"), ExitStatus.TIMED_OUT),
        (TimedOutError("x"), ExitStatus.TIMED_OUT),
        (TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x"), ExitStatus.NOT_FOUND),
        (TidelogError(ErrorCode.TOPIC_ALREADY_EXISTS, "x"), ExitStatus.FAILED),
        (PermissionError("x"), ExitStatus.FAILED),
    ],
)
def test_each_error_has_its_exit_status(error: Exception, status: ExitStatus) -> None:
    assert status_of(error) is status


def test_help_documents_every_exit_status() -> None:
    for status in ExitStatus:
        assert f"  {status.value:<4} " in exit_status.EPILOG


def partition(**changes: object) -> PartitionDescription:
    fields: dict[str, object] = {
        "partition": 0,
        "leader": 1,
        "leader_epoch": 4,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "eligible_leader_replicas": (),
        "offline_replicas": (),
        "unclean_leader_epoch": -1,
        "min_isr": 2,
    }
    return PartitionDescription(**(fields | changes))  # type: ignore[arg-type]


# Broker 4 is being added, so it is not missing before the switch.
MOVED: dict[str, object] = {
    "replicas": (1, 2, 3, 4),
    "moving_operation": "grow-1",
    "original_replicas": (1, 2, 3),
    "target_replicas": (1, 2, 4),
}


@pytest.mark.parametrize(
    ("changes", "health"),
    [
        ({}, "ok"),
        ({"isr": (1, 2)}, "under-replicated"),
        ({"isr": (1,)}, "below min ISR"),
        (MOVED, "ok"),
        (MOVED | {"isr": (1, 2)}, "under-replicated"),
        ({"leader": -1, "isr": (3,)}, "no leader, below min ISR"),
        ({"unclean_leader_epoch": 4}, "unclean election in epoch 4"),
    ],
)
def test_health_names_the_problems(changes: dict[str, object], health: str) -> None:
    assert partition_health(partition(**changes)) == health


def test_health_is_counted_over_topics() -> None:
    unwell = partition(leader=-1, isr=())
    topic = TopicDescription("sea", "id", 3, {}, (partition(), partition(isr=(1, 2)), unwell), 3)
    assert HealthCounts.of([topic]) == HealthCounts(3, 1, 1, 2)
    assert str(HealthCounts.of([])) == "ok"


def test_a_tally_lists_the_first_lines_and_counts_the_others_by_kind() -> None:
    tally = ProduceTally()
    for number in range(1, 21):
        tally.take(1)
        tally.failed(number, number, 1, LineError("has no ':'"))
    report = tally.report_lines()
    assert report[0].startswith("20 lines")
    assert report[1] == "  line 1: has no ':'"
    assert len(report) == 1 + MAX_NAMED_FAILURES + 2
    assert report[-1] == "  20 × not a record"
    assert (tally.status, tally.stopped, tally.in_flight) == (ExitStatus.FAILED, False, 0)


def test_lines_of_one_batch_are_reported_together() -> None:
    assert str(UnsentLines(1, 10, 4, "why")) == "4 of lines 1 to 10: why"
    assert str(UnsentLines(1, 10, 10, "why")) == "lines 1 to 10: why"


def test_a_tally_has_the_most_severe_status() -> None:
    tally = ProduceTally()
    tally.failed(1, 1, 1, TidelogError(ErrorCode.LEADER_CHANGED, "outcome unknown"))
    tally.failed(2, 2, 1, TidelogError(ErrorCode.STORAGE_ERROR, "disk full"))
    assert tally.status is ExitStatus.TIMED_OUT
    assert tally.stopped


def test_a_too_large_line_stops_nothing() -> None:
    tally = ProduceTally()
    tally.failed(1, 1, 1, TidelogError(ErrorCode.BATCH_TOO_LARGE, "too large"))
    assert not tally.stopped


def test_the_summary_has_counts_and_rates() -> None:
    tally = ProduceTally()
    tally.delivered_more(1000, 100_000)
    summary = tally.summary("sea", 0.5, acknowledged=True)
    assert summary == (
        "1,000 records (100.0 kB) delivered to sea in 0.50 s: 2,000 records/s, 200.0 kB/s"
    )
