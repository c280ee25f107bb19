"""Frames: their layout, and that all damage is detected."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from tidelog.log_format import (
    FRAME_HEADER_BYTES,
    FrameError,
    check_records,
    dump_frames,
    find_frame,
    is_torn,
    parse_frame,
    segment_name,
    walk_frames,
)
from unit.broker.log.builders import batch_at, batches_from, encode_frame


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda size, position: data[position : position + size]


def test_frame_has_the_documented_layout() -> None:
    batch = batch_at(7, count=3, epoch=2, size=5)
    frame = encode_frame(batch)
    header = batch.header
    assert frame == (
        struct.pack("<I4s", FRAME_HEADER_BYTES + 5, b"TLB\x01")
        + struct.pack("<qiqI", 7, 2, header.append_time_ms, header.broker_crc32c)
        + struct.pack("<IBi", header.crc32c, 0, 3)
        + struct.pack("<qqq", header.base_timestamp_ms, header.max_timestamp_ms, -1)
        + struct.pack("<ii", -1, -1)
        + batch.records
    )


def test_a_parsed_frame_has_the_header_that_was_encoded() -> None:
    batch = batch_at(7, count=3, epoch=2)
    frame = parse_frame(encode_frame(batch), 0, expected_offset=7)
    assert frame.header == batch.header
    assert frame.length == len(encode_frame(batch))


def test_segment_names_sort_by_offset() -> None:
    assert segment_name(42) == "00000000000000000042.log"
    assert segment_name(9) < segment_name(10)


def test_a_frame_with_an_unexpected_offset_is_invalid() -> None:
    with pytest.raises(FrameError, match="base offset 7 where 8 follows"):
        parse_frame(encode_frame(batch_at(7)), 0, expected_offset=8)


def test_every_flipped_bit_is_found() -> None:
    sound = encode_frame(batch_at(0, size=20)) + encode_frame(batch_at(1, size=20))
    first_bytes = len(sound) // 2
    for bit in range(first_bytes * 8):
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        infos = list(walk_frames(reader(bytes(data)), len(data), expected_offset=0, verify=True))
        assert infos[0].fault is not None, f"bit {bit} was flipped unseen"


def test_a_frame_cut_at_any_byte_is_found() -> None:
    first, second = encode_frame(batch_at(0)), encode_frame(batch_at(1))
    for cut in range(1, len(second)):
        data = first + second[:cut]
        sound, torn = walk_frames(reader(data), len(data), verify=True)
        assert sound.fault is None
        assert torn.fault is not None
        assert (torn.position, torn.size) == (len(first), cut)


def test_a_length_beyond_the_bound_is_rejected_before_memory_is_allocated() -> None:
    frame = bytearray(encode_frame(batch_at(0)))
    frame[0:4] = (0xFFFFFFFF).to_bytes(4, "little")
    with pytest.raises(FrameError, match="length 4294967295 is outside"):
        parse_frame(bytes(frame), 0, None)


def test_records_with_another_crc_are_rejected() -> None:
    batch = batch_at(0)
    with pytest.raises(FrameError, match="CRC32C of the batch"):
        check_records(batch.header, batch.records + b"x")


def test_walking_headers_reads_far_less_than_the_file() -> None:
    data = b"".join(map(encode_frame, batches_from(0, 20, size=50_000)))
    sizes = []

    def read(size: int, position: int) -> bytes:
        sizes.append(size)
        return data[position : position + size]

    assert len(list(walk_frames(read, len(data), verify=False))) == 20
    assert sum(sizes) < len(data) / 10


def test_a_valid_frame_is_found_behind_garbage_of_any_length() -> None:
    rng = random.Random(1)
    frame = encode_frame(batch_at(3))
    for length in (0, 1, 3, 73, (1 << 20) - 40, 1 << 20):
        data = rng.randbytes(length) + frame
        assert find_frame(reader(data), 0, len(data)) == length


def test_no_frame_is_found_where_there_is_none() -> None:
    data = b"TLB\x01" * 1000
    assert find_frame(reader(data), 0, len(data)) is None


def test_a_dump_continues_behind_the_damage() -> None:
    frames = [encode_frame(batch) for batch in batches_from(0, 3)]
    damaged = bytearray(frames[1])
    damaged[-1] ^= 1
    data = frames[0] + bytes(damaged) + frames[2] + b"tail"
    infos = list(dump_frames(reader(data), len(data)))
    assert [info.fault is None for info in infos] == [True, False, True, False]
    assert [info.size for info in infos] == [*map(len, frames), 4]
    assert infos[1].header is not None


def test_every_prefix_of_a_frame_is_torn_and_a_complete_one_is_not() -> None:
    data = encode_frame(batch_at(0))
    assert all(is_torn(reader(data[:end]), 0, end) for end in range(len(data)))
    assert not is_torn(reader(data), 0, len(data))


def test_a_complete_header_that_is_wrong_is_not_torn() -> None:
    data = bytearray(encode_frame(batch_at(0)))
    data[8] ^= 1
    assert not is_torn(reader(bytes(data)), 0, len(data) - 1)
