"""`tidelog produce` and `tidelog consume`."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import pytest

from tidelog.batch import stamp
from tidelog.cli import line_sender, record_reading
from tidelog.cli.exit_status import ExitStatus
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Codec
from tidelog.record_batch import decode, encode
from tidelog.v1 import broker_pb2
from unit.cli.conftest import Commands

FAR_TIMEOUT = ("--timeout", "5")


def fill(commands: Commands, partition: int, values: list[bytes], timestamp_ms: int = 1000) -> None:
    """Append one batch for each value."""
    log = commands.cluster.partition("sea", partition)
    for value in values:
        batch = encode([value], [b"k"], timestamps_ms=timestamp_ms)
        log.batches.append(stamp(batch, base_offset=log.end, leader_epoch=1, append_time_ms=5))


def test_lines_become_records(commands: Commands) -> None:
    result = commands.run("produce", "sea", input_="ebb\n\nflow")
    assert result.exit_code == ExitStatus.DONE
    assert sorted(commands.values("sea"), key=repr) == [b"", b"ebb", b"flow"]
    assert result.stdout == ""
    assert result.stderr.startswith("3 records (7 B) delivered to sea in ")


def test_non_text_bytes_are_kept(commands: Commands) -> None:
    commands.run("produce", "sea", "-p", "1", input_=b"\xff\x00\r\n")
    assert commands.cluster.partition("sea", 1).values() == [b"\xff\x00\r"]


def test_keys_are_split_from_values_and_choose_the_partition(commands: Commands) -> None:
    lines = "".join(f"k{number % 5}\\t{number}\n".replace("\\t", "\t") for number in range(50))
    assert commands.run("produce", "sea", "-k", "\\t", input_=lines).exit_code == ExitStatus.DONE
    seen = [
        {key for batch in partition.batches for key in decode(batch).keys}
        for partition in commands.cluster.topics["sea"].partitions
    ]
    assert seen[0] | seen[1] == {b"k0", b"k1", b"k2", b"k3", b"k4"}
    assert not seen[0] & seen[1]


def test_a_file_is_produced_and_summarized_as_json(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"calm\n" * 20_000)
    result = commands.run(
        *("produce", "sea", "--file", str(path), "--compression", "zstd", "--json")
    )
    document = json.loads(result.stdout)
    assert (document["delivered"], document["delivered_bytes"]) == (20_000, 80_000)
    assert (document["unsent"], document["first_unsent_line"]) == (0, None)
    assert result.stderr == ""
    batches = commands.cluster.partition("sea", 0).batches
    assert {batch.header.codec for batch in batches} == {Codec.ZSTD}


def test_the_number_of_lines_in_flight_is_bounded(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_sender, "MAX_LINES_IN_FLIGHT", 1)
    monkeypatch.setattr(line_sender, "MAX_BULK_LINES", 10)
    monkeypatch.setattr(line_sender, "BULK_LINES", 2)
    assert commands.run("produce", "sea", input_="x\n" * 100).exit_code == ExitStatus.DONE
    assert len(commands.values("sea")) == 100
    assert max(b.header.record_count for b in commands.cluster.partition("sea").batches) <= 10


def test_a_line_without_the_separator_is_reported_and_the_others_are_sent(
    commands: Commands,
) -> None:
    result = commands.run("produce", "sea", "-k", ":", input_="a:1\nb2\nc:3\n")
    assert result.exit_code == ExitStatus.FAILED
    assert "line 2: has no ':' between key and value" in result.stderr
    assert "2 records" in result.stderr
    assert set(commands.values("sea")) == {b"1", b"3"}


def test_a_too_large_line_is_reported_and_the_others_are_sent(commands: Commands) -> None:
    result = commands.run("produce", "sea", input_="x" * (2 << 20) + "\nsmall\n")
    assert result.exit_code == ExitStatus.FAILED
    assert "line 1: " in result.stderr
    assert commands.values("sea") == [b"small"]


def test_the_line_size_limit_is_that_of_the_topic(commands: Commands) -> None:
    commands.cluster.topics["sea"].config["max_batch_bytes"] = str(4 << 20)
    line = "x" * (3 << 20)
    assert commands.run("produce", "sea", input_=line).exit_code == ExitStatus.DONE
    assert commands.values("sea") == [line.encode()]


def test_one_too_large_record_among_many_is_found(commands: Commands) -> None:
    lines = ["small"] * 50 + ["x" * (2 << 20)] + ["small"] * 50
    result = commands.run("produce", "sea", input_="\n".join(lines))
    assert "1 line not delivered" in result.stderr
    assert "line 51: " in result.stderr
    assert commands.values("sea") == [b"small"] * 100


def test_consecutive_failed_lines_are_reported_as_a_range(commands: Commands) -> None:
    rejection = TidelogError(ErrorCode.INVALID_REQUEST, "not known here")
    for broker in commands.cluster.brokers.values():
        broker.script["produce"] = deque([rejection] * 50)
    result = commands.run("produce", "sea", "-p", "0", input_="a\n" * 100)
    assert "100 lines not delivered" in result.stderr
    assert "lines 1 to 100: not known here" in result.stderr


def test_a_failed_delivery_stops_and_names_the_line_to_resume_at(commands: Commands) -> None:
    rejection = TidelogError(ErrorCode.INVALID_REQUEST, "not known here")
    for broker in commands.cluster.brokers.values():
        broker.script["produce"] = deque([rejection] * 50)
    result = commands.run("produce", "sea", "--json", input_="a\nb\n")
    assert result.exit_code == ExitStatus.FAILED
    assert "line 1: not known here" in result.stderr
    assert "start again at line 1" in result.stderr
    document = json.loads(result.stdout)
    assert (document["delivered"], document["unsent"]) == (0, 2)
    assert document["unsent_lines"][0] == {
        "first": 1,
        "last": 1,
        "unsent": 1,
        "reason": "not known here",
    }


def test_an_unknown_outcome_has_its_own_exit_status(commands: Commands) -> None:
    for broker in commands.cluster.brokers.values():
        broker.script["produce"] = deque(["hang"] * 50)
    result = commands.run("produce", "sea", "--timeout", "0.2", input_="a\n")
    assert result.exit_code == ExitStatus.TIMED_OUT


def test_acks_are_sent(commands: Commands) -> None:
    commands.run("produce", "sea", "-p", "0", "--acks", "1", input_="a\n")
    [request] = commands.cluster.brokers[0].seen["produce"]
    assert isinstance(request, broker_pb2.ProduceRequest)
    assert request.acks == broker_pb2.ACKS_LEADER


def producer_ids(commands: Commands) -> set[int]:
    return {
        batch.header.producer_id
        for partition in commands.cluster.topics["sea"].partitions
        for batch in partition.batches
    }


def test_lines_carry_a_producer_id_so_that_retries_do_not_duplicate(commands: Commands) -> None:
    commands.run("produce", "sea", input_="a\n")
    assert producer_ids(commands) == {1}


def test_without_idempotence_lines_carry_no_producer_id(commands: Commands) -> None:
    commands.run("produce", "sea", "--no-idempotence", input_="a\n")
    commands.run("produce", "sea", "--acks", "1", input_="a\n")
    assert producer_ids(commands) == {-1}


def test_a_producer_name_keeps_its_id(commands: Commands) -> None:
    for _ in range(2):
        commands.run("produce", "sea", "-p", "0", "--producer-name", "tide", input_="a\n")
    batches = commands.cluster.partition("sea").batches
    assert [b.header.producer_id for b in batches] == [1 << 62] * 2
    assert [b.header.base_sequence for b in batches] == [0, 1]


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_an_unknown_topic_or_partition_is_not_found(commands: Commands, command: str) -> None:
    topic = commands.run(command, "nosuch", input_="a\n")
    assert topic.exit_code == ExitStatus.NOT_FOUND
    assert "'nosuch' does not exist" in topic.stderr
    partition = commands.run(command, "sea", "--partition", "2", input_="a\n")
    assert partition.exit_code == ExitStatus.NOT_FOUND
    assert "its partitions are 0 to 1" in partition.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "sea", "--acks", "2"),
        ("produce", "sea", "--acks", "1", "--producer-name", "tide"),
        ("produce", "sea", "--no-idempotence", "--producer-name", "tide"),
        ("produce", "sea", "--producer-name", "high tide"),
        ("produce", "sea", "--key-separator", ""),
        ("produce", "sea", "--file", "/nonexistent"),
        ("consume", "sea", "--from", "later"),
        ("consume", "sea", "--max", "-1"),
        ("consume", "sea", "--partition", "9999999999"),
        ("produce", "sea", "--partition", "9999999999"),
        ("topics", "create", "wide", "--partitions", "9999999999"),
        ("topics", "create", "wide", "--replication-factor", "9999999999"),
    ],
)
def test_wrong_usage_has_its_own_exit_status(
    commands: Commands, arguments: tuple[str, ...]
) -> None:
    assert commands.run(*arguments).exit_code == ExitStatus.USAGE


def test_all_existing_records_are_printed(commands: Commands) -> None:
    fill(commands, 0, [b"ebb", b"flow"])
    fill(commands, 1, [b"calm"])
    result = commands.run("consume", "sea", *FAR_TIMEOUT)
    assert result.exit_code == ExitStatus.DONE
    assert sorted(result.stdout.splitlines()) == ["calm", "ebb", "flow"]


def test_an_empty_topic_prints_nothing(commands: Commands) -> None:
    result = commands.run("consume", "sea", *FAR_TIMEOUT)
    assert (result.exit_code, result.stdout, result.stderr) == (ExitStatus.DONE, "", "")


def test_records_are_printed_as_json(commands: Commands) -> None:
    fill(commands, 1, [b"calm", b"\xff"])
    result = commands.run("consume", "sea", "-p", "1", "--json", *FAR_TIMEOUT)
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["partition"], first["offset"], first["key"], first["value"]) == (
        1,
        0,
        "k",
        "calm",
    )
    assert (first["timestamp_ms"], first["headers"]) == (1000, [])
    assert (second["value"], second["value_encoding"]) == ("/w==", "base64")


@pytest.mark.parametrize(
    ("start", "printed"),
    [
        ("beginning", b"abcd"),
        ("2", b"cd"),
        ("4", b""),
        ("end", b""),
        ("time:1970-01-01T00:00:02Z", b"cd"),
        ("-5m", b""),
    ],
)
def test_reading_begins_at_the_requested_position(
    commands: Commands, start: str, printed: bytes
) -> None:
    fill(commands, 0, [b"a", b"b"], timestamp_ms=1000)
    fill(commands, 0, [b"c", b"d"], timestamp_ms=3000)
    result = commands.run(
        *("consume", "sea", "-p", "0", "--from", start, "--format", "raw", *FAR_TIMEOUT)
    )
    assert result.exit_code == ExitStatus.DONE
    assert result.stdout_bytes == printed


@pytest.mark.parametrize("start", ["0", "9"])
def test_an_offset_out_of_range_is_rejected_with_the_valid_range(
    commands: Commands, start: str
) -> None:
    fill(commands, 0, [b"a", b"b", b"c"])
    commands.cluster.partition("sea", 0).log_start = 1
    result = commands.run("consume", "sea", "-p", "0", "--from", start)
    assert result.exit_code == ExitStatus.FAILED
    assert "it begins at 1 and ends before 3" in result.stderr


def test_at_most_max_records_are_printed(commands: Commands) -> None:
    fill(commands, 0, [b"a", b"b", b"c"])
    assert commands.run("consume", "sea", "-n", "2").stdout == "a\nb\n"
    assert commands.run("consume", "sea", "-n", "0").stdout == ""


def test_later_records_are_printed_only_with_follow(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(commands, 0, [b"a"])
    go_to = record_reading.seek

    async def go_to_and_append(*arguments: object) -> None:
        # The log ends are known by now.
        fill(commands, 0, [b"late"])
        await go_to(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(record_reading, "seek", go_to_and_append)
    assert commands.run("consume", "sea", *FAR_TIMEOUT).stdout == "a\n"
    followed = commands.run("consume", "sea", "--follow", "--max", "3")
    assert sorted(followed.stdout.splitlines()) == ["a", "late", "late"]


def test_missing_records_time_out(commands: Commands) -> None:
    fill(commands, 0, [b"a"])
    commands.cluster.brokers[0].script["fetch"] = deque(["hang"] * 20)
    result = commands.run("consume", "sea", "--timeout", "0.3")
    assert result.exit_code == ExitStatus.TIMED_OUT
    assert "sea/0 from 0 to 0" in result.stderr


def test_records_produced_with_keys_are_consumed_with_keys(commands: Commands) -> None:
    lines = [f"k{number}:{number}" for number in range(20)]
    commands.run("produce", "sea", "-k", ":", input_="\n".join(lines))
    result = commands.run("consume", "sea", "-k", ":", *FAR_TIMEOUT)
    assert sorted(result.stdout.splitlines()) == sorted(lines)
