"""`tidelog dump-log` on files as a broker writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidelog.batch import new_batch, stamp
from tidelog.cli.__main__ import app
from tidelog.cli.exit_status import ExitStatus
from tidelog.log_format import encode_frame_header, segment_name
from tidelog.model import Batch, Codec
from tidelog.record_batch import encode

BATCH_RECORDS = 2


def batch_at(base_offset: int) -> Batch:
    values = [b"v%d" % (base_offset + index) for index in range(BATCH_RECORDS)]
    batch = encode(
        values,
        [b"k\xff", None],
        timestamps_ms=1_700_000_000_000,
        headers={0: [("h", b"x")]},
        codec=Codec.GZIP,
    )
    return stamp(batch, base_offset=base_offset, leader_epoch=3, append_time_ms=5)


def write_segment(directory: Path, batches: list[Batch], name: str | None = None) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / (name or segment_name(batches[0].header.base_offset))
    path.write_bytes(b"".join(encode_frame_header(b) + b.records for b in batches))
    return path


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Two segments of two batches of two records each."""
    write_segment(tmp_path / "sea-0", [batch_at(0), batch_at(2)])
    write_segment(tmp_path / "sea-0", [batch_at(4), batch_at(6)])
    return tmp_path / "sea-0"


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["dump-log", *map(str, arguments)], catch_exceptions=False)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def test_batches_are_shown_segment_by_segment(partition: Path) -> None:
    result = dump(partition)
    assert result.exit_code == ExitStatus.DONE
    rows = [line.split() for line in result.stdout.splitlines() if "gzip" in line]
    assert [row[2:6] for row in rows] == [
        ["0", "1", "2", "3"],
        ["2", "3", "2", "3"],
        ["4", "5", "2", "3"],
        ["6", "7", "2", "3"],
    ]
    assert result.stderr.startswith("2 segments, 4 batches, 8 records")


def test_records_are_shown_on_demand(partition: Path) -> None:
    shown = dump(partition / segment_name(4), "--records").stdout
    assert "    4  2023-11-14T22:13:20.000Z  b'k\\xff'  v4  h=x\n" in shown
    assert "    7  2023-11-14T22:13:20.000Z  null  v7\n" in shown


def test_batches_and_records_are_shown_as_json(partition: Path) -> None:
    documents = [
        json.loads(line) for line in dump(partition, "--records", "--json").stdout.splitlines()
    ]
    assert [document["base_offset"] for document in documents] == [0, 2, 4, 6]
    first = documents[0]
    assert (first["codec"], first["fault"], first["position"]) == ("gzip", None, 0)
    record = first["records"][0]
    assert (record["offset"], record["value"]) == (0, "v0")
    assert (record["key"], record["key_encoding"]) == ("a/8=", "base64")
    assert record["headers"] == [{"key": "h", "value": "x"}]


def test_an_intact_log_passes_verification(partition: Path) -> None:
    result = dump(partition, "--verify")
    assert result.exit_code == ExitStatus.DONE
    assert result.stdout.endswith(": sound\n")
    document = json.loads(dump(partition, "--verify", "--json").stdout)
    assert (document["records"], document["fault_count"], document["faults"]) == (8, 0, [])


@pytest.mark.parametrize("options", [(), ("--verify",), ("--records",), ("--json",)])
def test_a_flipped_bit_is_located(partition: Path, options: tuple[str, ...]) -> None:
    path = partition / segment_name(0)
    second = len(encode_frame_header(batch_at(0))) + len(batch_at(0).records)
    flip(path, path.stat().st_size - 1)
    result = dump(partition, *options)
    assert result.exit_code == ExitStatus.FAILED
    assert f"{path} at byte {second} (" in result.stderr
    assert "CRC32C" in result.stderr


def test_batches_behind_the_damage_are_shown(partition: Path) -> None:
    flip(partition / segment_name(0), 40)
    documents = [json.loads(line) for line in dump(partition, "--json").stdout.splitlines()]
    assert [document["fault"] is None for document in documents] == [False, True, True, True]


def test_a_torn_tail_counts_as_damage(partition: Path) -> None:
    path = partition / segment_name(4)
    path.write_bytes(path.read_bytes()[:-3])
    assert dump(partition).exit_code == ExitStatus.FAILED


def test_a_gap_between_segments_is_found_by_verify(tmp_path: Path) -> None:
    write_segment(tmp_path / "sea-0", [batch_at(0)])
    write_segment(tmp_path / "sea-0", [batch_at(6)])
    assert dump(tmp_path / "sea-0").exit_code == ExitStatus.DONE
    result = dump(tmp_path / "sea-0", "--verify")
    assert result.exit_code == ExitStatus.FAILED
    assert "the file name has offset 6 where 2 follows" in result.stderr


def test_a_gap_within_a_segment_counts_as_damage(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [batch_at(0), batch_at(6)])
    assert "base offset 6 where 2 follows" in dump(path, "--verify").stderr


def test_an_unreadable_batch_is_found_by_verify(tmp_path: Path) -> None:
    rubbish = new_batch(
        b"no RecordBatch",
        codec=Codec.NONE,
        record_count=1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
    )
    path = write_segment(
        tmp_path, [stamp(rubbish, base_offset=0, leader_epoch=0, append_time_ms=0)]
    )
    assert dump(path).exit_code == ExitStatus.DONE
    assert dump(path, "--verify").exit_code == ExitStatus.FAILED


def test_a_copy_under_another_name_passes_verification(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [batch_at(4)], name="copy.log")
    assert dump(path, "--verify").exit_code == ExitStatus.DONE


def test_a_path_without_a_log_is_wrong_usage(tmp_path: Path) -> None:
    assert dump(tmp_path / "nosuch").exit_code == ExitStatus.USAGE
    empty = dump(tmp_path)
    assert empty.exit_code == ExitStatus.USAGE
    assert "name a partition's directory" in empty.stderr
    assert dump(tmp_path, "--verify", "--records").exit_code == ExitStatus.USAGE


def test_a_device_exists_and_is_no_segment() -> None:
    ended = CliRunner().invoke(app, ["dump-log", "/dev/zero"])
    assert ended.exit_code == ExitStatus.USAGE
    assert "/dev/zero is no file" in " ".join(ended.output.split())
