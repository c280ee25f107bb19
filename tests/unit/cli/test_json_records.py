"""`produce --format json`: records as JSON lines, and what `consume` printed."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli import line_sender
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.json_records import JsonRecords
from tidelog.cli.lines import Line, LineError, LineRecord
from tidelog.cli.output import json_line
from tidelog.cli.record_decoding import ValueDecoding, parse_decoder
from tidelog.cli.record_format import record_document
from tidelog.model import Record
from tidelog.record_batch import decode
from unit.cli.conftest import Commands

PRODUCE = ("produce", "sea", "--format", "json")


def parsed(document: object) -> LineRecord:
    return JsonRecords(4).parse(Line(1, json.dumps(document).encode()))


@pytest.mark.parametrize(
    ("document", "record"),
    [
        ({"value": "calm"}, LineRecord(None, b"calm")),
        ({"key": "north", "value": None}, LineRecord(b"north", None)),
        ({"key": "n", "value": {"tide": "Flut"}}, LineRecord(b"n", b'{"tide":"Flut"}')),
        ({"value": 7}, LineRecord(None, b"7")),
        ({"value": "7", "value_encoding": "json"}, LineRecord(None, b'"7"')),
        ({"value": "/wA=", "value_encoding": "base64"}, LineRecord(None, b"\xff\x00")),
        ({"key_base64": "/w==", "value_base64": ""}, LineRecord(b"\xff", b"")),
        ({"value": "ff00", "value_encoding": "hex"}, LineRecord(None, b"\xff\x00")),
        ({"value": "", "headers": {"from": "buoy"}}, LineRecord(None, b"", (("from", b"buoy"),))),
        (
            {
                "value": "",
                "headers": [{"key": "a", "value": "1"}, {"key": "a", "value_base64": "/w=="}],
            },
            LineRecord(None, b"", (("a", b"1"), ("a", b"\xff"))),
        ),
        ({"value": "", "partition": 3, "timestamp_ms": 5}, LineRecord(None, b"", (), 3, 5)),
        ({"value": "", "topic": "bay", "offset": 17, "timestamp": "x"}, LineRecord(None, b"")),
    ],
)
def test_a_json_line_becomes_a_record(document: object, record: LineRecord) -> None:
    assert parsed(document) == record


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "is empty"),
        (b"calm", r"is not JSON \(Expecting value at column 1\); give an object as"),
        (b'{"value": "a"', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"value": "\xff"}', "is not UTF-8 at byte 11; give bytes as value_base64"),
        (b"[1]", "is not a JSON object"),
        (b'{"key": "a"}', "has no value"),
        (b'{"value": 1, "vaule": 2}', r"unknown field 'vaule'; did you mean value\?"),
        (b'{"value": 1, "x": 2}', "unknown field 'x'; known fields: topic, offset"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        (b'{"value_base64": "?"}', "value_base64 is not base64"),
        (b'{"value": 1, "value_encoding": "base64"}', "value is not base64"),
        (b'{"value": "abc", "value_encoding": "hex"}', "value is not hexadecimal"),
        (b'{"value": 1, "value_encoding": "text"}', "value is not a string"),
        (b'{"value": {}, "value_encoding": "protobuf"}', "give one of text, json, base64 or hex"),
        (b'{"value": "\\ud800"}', "character 0 of value is half of a surrogate pair"),
        (b'{"value": [NaN]}', "value has NaN"),
        (b'{"value": 1, "partition": 4}', "the topic's partitions are 0 to 3; correct it, or give"),
        (b'{"value": 1, "partition": true}', "partition is 'True'; give an integer"),
        (b'{"value": 1, "partition": -1}', "partition is '-1'; give an integer from 0"),
        (b'{"value": 1, "timestamp_ms": "now"}', "timestamp_ms is 'now'; give an integer"),
        (b'{"value": 1, "headers": "a"}', "headers is neither an object"),
        (b'{"value": 1, "headers": 0}', "headers is neither an object"),
        (b'{"value": 1, "headers": {"a": 1}}', r"headers\.a is not a string"),
        (b'{"value": 1, "headers": [{"value": "b"}]}', r"headers\[0\] is not an object"),
        (b'{"value": 1, "headers": [{"key": "b"}]}', r"headers\[0\] has no value"),
        (b'{"value": 1, "headers": [{"key": "b", "x": 1}]}', r"headers\[0\] has an unknown field"),
    ],
)
def test_another_line_is_rejected_with_what_is_valid(line: bytes, reason: str) -> None:
    with pytest.raises(LineError, match=reason):
        JsonRecords(4).parse(Line(1, line))


def test_a_line_that_is_too_long_is_rejected() -> None:
    with pytest.raises(LineError, match="which no record needs"):
        JsonRecords(4).parse(Line(1, None))


@pytest.mark.parametrize("names", [["x" * 1_025], [f"h{number}" for number in range(1_001)]])
def test_headers_beyond_the_limits_of_records_are_rejected(names: list[str]) -> None:
    with pytest.raises(LineError, match="fixed limit"):
        parsed({"value": "", "headers": dict.fromkeys(names, "")})


BYTES = st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
RECORDS = st.builds(
    Record,
    st.just("sea"),
    st.integers(0, 3),
    st.integers(0, 2**62),
    st.integers(0, 2**62 - 1),
    st.none() | BYTES,
    st.none() | BYTES,
    st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple),
    st.just(1),
)


@given(RECORDS)
def test_what_consume_prints_becomes_the_same_record(record: Record) -> None:
    line = json_line(record_document(record)).encode()
    expected = LineRecord(
        record.key, record.value, record.headers, record.partition, record.timestamp_ms
    )
    assert JsonRecords(4).parse(Line(1, line)) == expected


@given(RECORDS, st.sampled_from(["utf8", "hex", "base64"]))
def test_decoded_values_become_the_same_bytes(record: Record, encoding: str) -> None:
    decoding = ValueDecoding(encoding, parse_decoder(encoding))
    line = json_line(record_document(record, decoding)).encode()
    assert JsonRecords(4).parse(Line(1, line)).value == record.value


@given(st.recursive(st.booleans() | st.text(), lambda inner: st.lists(inner)))
def test_values_decoded_as_json_become_the_same_json(value: object) -> None:
    stored = json_line(value).encode()
    record = Record("sea", 0, 0, 0, None, stored, (), 1)
    decoding = ValueDecoding("json", parse_decoder("json"))
    line = json_line(record_document(record, decoding)).encode()
    assert JsonRecords(4).parse(Line(1, line)).value == stored


# The command.


def records_of(commands: Commands, topic: str) -> list[tuple[object, ...]]:
    """Partition, timestamp, key, value and headers of every record."""
    found: list[tuple[object, ...]] = []
    for number, partition in enumerate(commands.cluster.topics[topic].partitions):
        for batch in partition.batches:
            columns = decode(batch)
            rows = zip(columns.timestamps_ms, columns.keys, columns.values, strict=True)
            found += [
                (number, *row, tuple(columns.headers.get(index, ())))
                for index, row in enumerate(rows)
            ]
    return found


@pytest.mark.parametrize("count", [3, 200])
def test_consumed_records_are_produced_again_as_they_were(commands: Commands, count: int) -> None:
    commands.cluster.create("bay", [0, 1])
    lines = [
        {
            "key_base64": base64.b64encode(b"\xff%d" % number).decode(),
            "value": f"value {number}" if number % 7 else None,
            "headers": {"number": str(number)} if number % 50 == 0 else {},
            "partition": number * 2 // count,
            "timestamp_ms": 1_000 + number,
        }
        for number in range(count)
    ]
    first = commands.run(*PRODUCE, input_="\n".join(map(json.dumps, lines)))
    assert first.exit_code == ExitStatus.DONE, first.stderr
    printed = commands.run("consume", "sea", "--format", "json").stdout
    second = commands.run("produce", "bay", "--format", "json", input_=printed)
    assert second.exit_code == ExitStatus.DONE, second.stderr
    assert len(records_of(commands, "sea")) == count
    assert records_of(commands, "bay") == records_of(commands, "sea")


def test_many_records_of_one_kind_share_batches(commands: Commands) -> None:
    line = json.dumps({"value": "calm", "partition": 1, "timestamp_ms": 5}) + "\n"
    commands.run(*PRODUCE, input_=line * 1_000)
    assert len(commands.cluster.partition("sea", 1).batches) == 1


def test_the_order_within_a_partition_is_that_of_the_lines(commands: Commands) -> None:
    lines = [
        json.dumps(
            {"value": str(number), "partition": 0}
            | ({"headers": {"a": "b"}} if number % 40 == 0 else {})
            | ({"timestamp_ms": 5} if number % 100 < 50 else {})
        )
        for number in range(500)
    ]
    commands.run(*PRODUCE, input_="\n".join(lines))
    assert commands.cluster.partition("sea").values() == [b"%d" % n for n in range(500)]


def test_the_partition_option_is_for_records_that_name_none(commands: Commands) -> None:
    lines = '{"value":"a"}\n{"value":"b","partition":0}\n'
    commands.run(*PRODUCE, "-p", "1", input_=lines)
    assert commands.cluster.partition("sea", 0).values() == [b"b"]
    assert commands.cluster.partition("sea", 1).values() == [b"a"]


def test_partitions_of_lines_can_be_ignored(commands: Commands) -> None:
    line = '{"value":"a","partition":99}\n'
    assert commands.run(*PRODUCE, input_=line).exit_code == ExitStatus.FAILED
    assert commands.run(*PRODUCE, "--ignore-partitions", input_=line).exit_code == ExitStatus.DONE
    assert commands.values("sea") == [b"a"]


def test_lines_that_are_no_records_are_named_and_skipped(commands: Commands) -> None:
    result = commands.run(*PRODUCE, input_='{"value":"a"}\ncalm\n{"value":"b"}\n')
    assert result.exit_code == ExitStatus.FAILED
    assert "line 2: is not JSON" in result.stderr
    assert "2 records" in result.stderr
    assert sorted(map(str, commands.values("sea"))) == ["b'a'", "b'b'"]


@pytest.mark.parametrize("before", [2, 50])
def test_the_first_error_stops_after_the_records_before_it(commands: Commands, before: int) -> None:
    lines = '{"value":"a"}\n' * before + "calm\n" + '{"value":"b"}\n' * 50
    result = commands.run(*PRODUCE, "--on-error", "stop", "--json", input_=lines)
    assert result.exit_code == ExitStatus.FAILED
    document = json.loads(result.stdout)
    assert (document["delivered"], document["first_unsent_line"]) == (before, before + 1)
    assert f"start again at line {before + 1}" in result.stderr
    assert commands.values("sea") == [b"a"] * before


def test_a_key_beyond_the_limit_is_named_among_many_lines(commands: Commands) -> None:
    good = '{"key":"k","value":"a"}\n' * 40
    long = json.dumps({"key": "k" * 70_000, "value": "b"}) + "\n"
    result = commands.run(*PRODUCE, input_=good + long + good)
    assert "1 line not delivered" in result.stderr
    assert "line 41: a key has 70000 bytes" in result.stderr
    assert commands.values("sea") == [b"a"] * 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "json", "-k", ":"), "leave out --key-separator"),
        (("--ignore-partitions",), "add --format json"),
        (("--batch-bytes", "64K"), "KiB"),
        (("--batch-bytes", "0"), "give 1 B to"),
        (("--linger-ms", "2h"), "give 0 ms to 1 h"),
        (("--timeout", "5 weeks"), "give one as 500ms, 10s"),
    ],
)
def test_wrong_options_are_rejected_with_valid_ones(
    commands: Commands, arguments: tuple[str, ...], message: str
) -> None:
    result = commands.run("produce", "sea", *arguments, input_="")
    assert result.exit_code == ExitStatus.USAGE
    assert message in " ".join(result.stderr.split())


def test_options_take_units(commands: Commands) -> None:
    result = commands.run(
        *("produce", "sea", "--batch-bytes", "16KiB", "--linger-ms", "20ms", "--timeout", "1m"),
        input_="calm\n",
    )
    assert (result.exit_code, commands.values("sea")) == (ExitStatus.DONE, [b"calm"])


def test_the_number_of_records_in_flight_is_bounded(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_sender, "MAX_LINES_IN_FLIGHT", 1)
    monkeypatch.setattr(line_sender, "BULK_LINES", 2)
    lines = '{"value":"a","partition":0}\n{"value":"a","partition":1}\n' * 20
    assert commands.run(*PRODUCE, input_=lines).exit_code == ExitStatus.DONE
    assert commands.values("sea") == [b"a"] * 40
