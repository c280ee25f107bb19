"""The manifest of a backup: its form, its checksum, and the offsets after a restore."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from crc32c import crc32c

from tidelog.backup.manifest import (
    BackupError,
    ClusterSettings,
    Gap,
    GapReason,
    PartitionBackup,
    Segment,
    decode_manifest,
    encode_manifest,
)
from tidelog.backup.offset_mapping import KeptRange, keeps_offsets, kept_ranges, source_offset
from unit.backup.written import manifest_of

PARTITION = PartitionBackup(
    0,
    60,
    100,
    100,
    3,
    last_epoch=3,
    segments=(Segment(60, 100, 4_000, 4, 40, 7),),
    gaps=(Gap(70, 80, GapReason.DAMAGED), Gap(80, 85, GapReason.REMOVED)),
    fences=(90,),
)


def test_a_manifest_is_read_as_it_was_written() -> None:
    manifest = manifest_of(PARTITION)
    assert decode_manifest(encode_manifest(manifest), "manifest.json") == manifest


@pytest.mark.parametrize("position", [300, 500])
def test_a_changed_byte_of_a_manifest_is_reported(position: int) -> None:
    data = bytearray(encode_manifest(manifest_of(PARTITION)))
    while not chr(data[position]).isdigit():
        position += 1
    data[position] = ord("1") if data[position] != ord("1") else ord("2")
    with pytest.raises(BackupError, match="damaged"):
        decode_manifest(bytes(data), "manifest.json")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda document: document.pop("format"), "no manifest"),
        (lambda document: document.update(version=2), "this release reads 1"),
        (lambda document: document["backup"].pop("topics"), "damaged"),
    ],
)
def test_a_file_that_is_no_manifest_is_rejected(changed: object, message: str) -> None:
    document = json.loads(encode_manifest(manifest_of(PARTITION)))
    assert callable(changed)
    changed(document)
    with pytest.raises(BackupError, match=message):
        decode_manifest(json.dumps(document).encode(), "manifest.json")


@pytest.mark.parametrize("settings", [None, ClusterSettings(None), ClusterSettings(5_000_000)])
def test_settings_of_the_cluster_are_read_as_they_were_written(
    settings: ClusterSettings | None,
) -> None:
    manifest = replace(manifest_of(PARTITION), settings=settings)
    assert decode_manifest(encode_manifest(manifest), "manifest.json") == manifest


def test_a_backup_of_a_release_without_settings_is_read() -> None:
    document = json.loads(encode_manifest(manifest_of(PARTITION)))
    del document["backup"]["settings"]
    text = json.dumps(document["backup"], sort_keys=True, separators=(",", ":"))
    document["crc32c"] = f"{crc32c(text.encode()):08x}"
    found = decode_manifest(json.dumps(document).encode(), "manifest.json")
    assert found == manifest_of(PARTITION)


def test_a_manifest_without_another_field_is_rejected() -> None:
    document = json.loads(encode_manifest(manifest_of(PARTITION)))
    del document["backup"]["topics"][0]["partitions"][0]["error"]
    text = json.dumps(document["backup"], sort_keys=True, separators=(",", ":"))
    document["crc32c"] = f"{crc32c(text.encode()):08x}"
    with pytest.raises(BackupError, match="no manifest of a backup: KeyError"):
        decode_manifest(json.dumps(document).encode(), "manifest.json")


def test_a_file_that_is_not_json_is_rejected() -> None:
    with pytest.raises(BackupError, match=r"manifest\.json is no manifest"):
        decode_manifest(b"\xff\x00", "manifest.json")


def test_omitted_records_and_fences_shift_the_offsets_behind_them() -> None:
    assert kept_ranges(PARTITION) == [
        KeptRange(60, 70, 0),
        KeptRange(85, 90, 10),
        KeptRange(91, 100, 15),
    ]
    assert PARTITION.records == 24


def test_a_restored_record_is_traced_to_its_original_offset() -> None:
    ranges = kept_ranges(PARTITION)
    assert [source_offset(ranges, offset) for offset in (0, 9, 10, 15, 23, 24)] == [
        60,
        69,
        85,
        91,
        99,
        None,
    ]


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (replace(PARTITION, start_offset=0, gaps=(), fences=()), True),
        (replace(PARTITION, start_offset=0, gaps=(), fences=(99,)), True),
        (replace(PARTITION, start_offset=0, gaps=(), fences=(10,)), False),
        (replace(PARTITION, gaps=(), fences=()), False),
        (PartitionBackup(0, 60, 60, 60, 1), True),
    ],
    ids=["from 0", "fence at the end", "fence inside", "later start", "empty"],
)
def test_offsets_are_kept_from_0_on_without_omissions(
    partition: PartitionBackup, expected: bool
) -> None:
    assert keeps_offsets(partition) is expected
