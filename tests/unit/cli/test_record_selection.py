"""`consume` with times, keys, patterns and decoders; parsing and filtering without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from tidelog.batch import stamp
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.positions import parse_moment
from tidelog.cli.record_decoding import Decoded, UndecodableError, ValueDecoding, parse_decoder
from tidelog.cli.record_filter import RecordFilter, parse_pattern
from tidelog.cli.record_format import RecordFormat, format_records
from tidelog.client.partitioner import partition_for_key
from tidelog.record_batch import encode
from unit.cli.conftest import Commands, record

NOW_MS = 1_800_000_000_000


def add(
    commands: Commands,
    partition: int,
    value: bytes,
    *,
    key: bytes | None = None,
    timestamp_ms: int = 1000,
    headers: tuple[tuple[str, bytes], ...] = (),
) -> None:
    """Appends a batch of one record."""
    log = commands.cluster.partition("sea", partition)
    batch = encode([value], [key], timestamps_ms=timestamp_ms, headers={0: headers})
    log.batches.append(stamp(batch, base_offset=log.end, leader_epoch=1, append_time_ms=5))


def shown(commands: Commands, *arguments: str) -> list[str]:
    """The sorted lines of a successful `consume sea`."""
    result = commands.run("consume", "sea", *arguments)
    assert result.exit_code == ExitStatus.DONE, result.stderr
    return sorted(result.stdout.splitlines())


# Times.


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("10m", NOW_MS - 600_000),
        ("-10m", NOW_MS - 600_000),
        ("1h30m", NOW_MS - 5_400_000),
        ("1970-01-01T00:00:02Z", 2_000),
        ("1970-01-01T00:00:02+00:00", 2_000),
        ("1767225600000", 1_767_225_600_000),
        ("99999999d", 0),
    ],
)
def test_a_moment_is_parsed(text: str, moment_ms: int) -> None:
    assert parse_moment(text, NOW_MS) == moment_ms


# A number without a unit may be an age whose unit was forgotten, or seconds since 1970.
@pytest.mark.parametrize("text", ["", "10", "1767225600", "20260131", "10w", "soon", "end", "²m"])
def test_another_moment_is_rejected_with_valid_forms(text: str) -> None:
    with pytest.raises(ValueError, match="neither an age, as 10m or 2h, nor a time"):
        parse_moment(text, NOW_MS)


def test_since_and_until_bound_each_partition(commands: Commands) -> None:
    for partition in (0, 1):
        for second in range(1, 5):
            add(commands, partition, b"%d-%d" % (partition, second), timestamp_ms=second * 1000)
    between = ("--since", "1970-01-01T00:00:02Z", "--until", "1970-01-01T00:00:04Z")
    assert shown(commands, *between) == ["0-2", "0-3", "1-2", "1-3"]
    assert shown(commands, "--until", "1970-01-01T00:00:02Z") == ["0-1", "1-1"]
    assert len(shown(commands, "--until", "end")) == 8
    # The future is not waited for.
    assert len(shown(commands, "--until", "2999-01-01T00:00:00Z")) == 8


def test_until_before_since_shows_nothing(commands: Commands) -> None:
    add(commands, 0, b"a", timestamp_ms=5000)
    assert shown(commands, "--since", "1m", "--until", "1970-01-01T00:00:02Z") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--since", "10"), "neither an age"),
        (("--until", "soon"), "neither an age"),
        (("--since", "10m", "--from", "end"), "give one of them"),
        (("--until", "end", "--follow"), "leave out --follow or --until"),
        (("--key-partition",), "give --key"),
        (("--key", "k", "--key-partition", "-p", "0"), "give one of them"),
        (("--grep", "("), "not a regular expression"),
        (("--decode", "avro"), "utf8, json, hex, base64 or protobuf:"),
        (("--decode", "protobuf:x"), "utf8, json, hex, base64 or protobuf:"),
        (("--decode", "protobuf:/nonexistent:sea.Tide"), "--descriptor_set_out"),
    ],
)
def test_wrong_options_are_rejected_with_valid_ones(
    commands: Commands, arguments: tuple[str, ...], message: str
) -> None:
    result = commands.run("consume", "sea", *arguments)
    assert result.exit_code == ExitStatus.USAGE
    assert message in " ".join(result.stderr.split())


# Filters.


def test_only_records_of_the_key_are_shown(commands: Commands) -> None:
    for key in (b"north", b"south", None):
        for partition in (0, 1):
            add(commands, partition, b"%d" % partition, key=key)
    result = commands.run("consume", "sea", "--key", "north", "-k", ":")
    assert sorted(result.stdout.splitlines()) == ["north:0", "north:1"]
    assert result.stderr == "6 records scanned, 2 shown.\n"


def test_only_the_partition_of_the_key_is_read_if_requested(commands: Commands) -> None:
    for partition in (0, 1):
        add(commands, partition, b"%d" % partition, key=b"north")
    expected = partition_for_key(b"north", 2)
    assert shown(commands, "--key", "north", "--key-partition") == [str(expected)]


@pytest.mark.parametrize("pattern", ["st.rm", "^north$", "from=buoy", r"\d{2}"])
def test_a_pattern_is_searched_in_key_value_and_headers(commands: Commands, pattern: str) -> None:
    add(commands, 0, b"a storm: 42", key=b"north", headers=(("from", b"buoy 7"),))
    add(commands, 0, b"calm", key=b"northern")
    assert shown(commands, "--grep", pattern) == ["a storm: 42"]


def test_max_counts_shown_records(commands: Commands) -> None:
    for number in range(20):
        add(commands, 0, b"%d" % number, key=b"odd" if number % 2 else b"even")
    result = commands.run("consume", "sea", "--key", "odd", "-n", "3")
    assert result.stdout == "1\n3\n5\n"
    assert result.stderr == "6 records scanned, 3 shown.\n"


def test_a_pattern_searches_bytes_that_are_not_text() -> None:
    accepts = RecordFilter(pattern=parse_pattern("tide")).accepts
    assert accepts(record(b"\xff\x00tide\xfe"))
    assert not accepts(record(b"\xff", key=b"\xfe"))
    assert not accepts(record(None))


def test_a_pattern_searches_the_decoded_value() -> None:
    decoding = ValueDecoding("hex", parse_decoder("hex"))
    accepts = RecordFilter(None, parse_pattern("^ff00$"), decoding.search_text).accepts
    assert accepts(record(b"\xff\x00"))
    assert not accepts(record(b"ff00"))


# Decoders.


@pytest.mark.parametrize(
    ("encoding", "value", "decoded"),
    [
        ("utf8", b"Flut", Decoded("Flut", "")),
        ("json", b'{"tide": [1, null]}', Decoded({"tide": [1, None]}, "json")),
        ("json", b"null", Decoded("null", "")),
        ("hex", b"\xff\x00", Decoded("ff00", "hex")),
        ("base64", b"\xff", Decoded("/w==", "base64")),
    ],
)
def test_a_value_is_decoded(encoding: str, value: bytes, decoded: Decoded) -> None:
    assert parse_decoder(encoding)(value) == decoded


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("utf8", b"\xff"),
        ("json", b"calm"),
        ("json", b"NaN"),
        ("json", b"1e999"),
        ("json", b"[" * 100_000),
        ("json", b'"\\ud800"'),
    ],
)
def test_a_value_in_another_encoding_is_undecodable(encoding: str, value: bytes) -> None:
    with pytest.raises(UndecodableError):
        parse_decoder(encoding)(value)


@given(st.binary())
def test_every_decoder_decodes_a_value_or_reports_it(value: bytes) -> None:
    for encoding in ("utf8", "json", "hex", "base64"):
        try:
            json.dumps(parse_decoder(encoding)(value).value, allow_nan=False)
        except UndecodableError as error:
            assert str(error)  # noqa: PT017 - not every value is an error


def test_undecodable_values_are_shown_as_without_decoding_and_counted(commands: Commands) -> None:
    for value in (b'{"a":1}', b"calm", b"ebb"):
        add(commands, 0, value)
    result = commands.run("consume", "sea", "--decode", "json", "--json")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [document["value"] for document in documents] == [{"a": 1}, "calm", "ebb"]
    assert [document.get("value_encoding") for document in documents] == ["json", None, None]
    assert "2 values could not be decoded as json" in result.stderr
    assert "the first: sea/0 offset 1: it is not JSON" in result.stderr


def test_details_are_one_line_with_headers_and_cut_values() -> None:
    shown_record = record(b"x" * 500, key=b"a\nb")._replace(headers=(("from", b"buoy"),))
    line = format_records([shown_record], RecordFormat.DETAIL).decode()
    assert line.startswith(
        "sea/0  0  2023-11-14T22:13:20.000Z  a\\nb  " + "x" * 80 + "… (500 bytes)"
    )
    assert line.endswith("  from=buoy\n")


# Protobuf.


@pytest.fixture
def descriptor_file(tmp_path: Path) -> str:
    """The descriptors of message sea.Tide, whose field `at` is a Timestamp."""
    tide = descriptor_pb2.FileDescriptorProto(
        name="sea.proto",
        package="sea",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    message = tide.message_type.add(name="Tide")
    message.field.add(name="sea_level_mm", number=1, type=3, label=1)
    message.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    message.nested_type.add(name="Inner")
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    path = tmp_path / "sea.desc"
    written = descriptor_pb2.FileDescriptorSet(file=[timestamp, tide])
    path.write_bytes(written.SerializeToString())
    (tmp_path / "alone.desc").write_bytes(
        descriptor_pb2.FileDescriptorSet(file=[tide]).SerializeToString()
    )
    return str(path)


# Field 1 is 1234, field 2 a Timestamp of 60 s.
TIDE = b"\x08\xd2\x09\x12\x02\x08\x3c"


def test_a_protobuf_message_is_shown_as_json(commands: Commands, descriptor_file: str) -> None:
    add(commands, 0, TIDE)
    decode = ("--decode", f"protobuf:{descriptor_file}:sea.Tide")
    expected = {"sea_level_mm": "1234", "at": "1970-01-01T00:01:00Z"}
    [line] = shown(commands, *decode)
    assert json.loads(line) == expected
    [line] = shown(commands, *decode, "--json", "--grep", "1970-01-01T00:01")
    assert json.loads(line)["value"] == expected


def test_another_value_is_no_protobuf_message(descriptor_file: str) -> None:
    with pytest.raises(UndecodableError, match=r"it is not a sea\.Tide"):
        parse_decoder(f"protobuf:{descriptor_file}:sea.Tide")(b"\xff\xff")


@pytest.mark.parametrize(
    ("file", "message", "error"),
    [
        ("sea.desc", "sea.Tid", r"did you mean .*sea\.Tide"),
        ("sea.desc", "Inner", r"did you mean sea\.Tide\.Inner\?"),
        ("sea.desc", "xyz", r"it has google\.protobuf\.Timestamp, sea\.Tide, sea\.Tide\.Inner$"),
        ("alone.desc", "sea.Tide", "--include_imports"),
        ("empty", "sea.Tide", "is not a descriptor set"),
        (".", "sea.Tide", "cannot read"),
    ],
)
def test_an_unusable_descriptor_file_is_reported_with_what_to_do(
    descriptor_file: str, file: str, message: str, error: str
) -> None:
    directory = Path(descriptor_file).parent
    (directory / "empty").touch()
    with pytest.raises(ValueError, match=error):
        parse_decoder(f"protobuf:{directory / file}:{message}")
