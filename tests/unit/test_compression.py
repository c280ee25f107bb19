import random
import zlib

import lz4.frame
import pytest
import zstandard

from tidelog import compression
from tidelog.compression import codec_of, compress, decompress
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Codec

COMPRESSED = [Codec.GZIP, Codec.LZ4, Codec.ZSTD]
TEXT = b"The tide waits for nobody. " * 500
LIMIT = 1 << 20


def rejection(codec: Codec, data: bytes, max_bytes: int = LIMIT) -> str:
    with pytest.raises(TidelogError) as caught:
        decompress(codec, data, max_bytes=max_bytes)
    assert caught.value.code is ErrorCode.INVALID_BATCH
    return caught.value.message


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"x", TEXT, random.Random(1).randbytes(70_000)])
def test_compressed_bytes_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), max_bytes=LIMIT) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_text_becomes_smaller(codec: Codec) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) // 10


@pytest.mark.parametrize("codec", Codec)
def test_exactly_the_limit_is_accepted_and_one_byte_more_is_rejected(codec: Codec) -> None:
    data = compress(codec, TEXT)
    assert decompress(codec, data, max_bytes=len(TEXT)) == TEXT
    assert "smaller batches" in rejection(codec, data, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_decompression_bomb_is_rejected(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    assert len(bomb) < 1 << 20
    assert "smaller batches" in rejection(codec, bomb)


def test_a_zstd_bomb_that_hides_its_size_is_rejected() -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    bomb = compressor.compress(bytes(64 << 20)) + compressor.flush()
    assert zstandard.frame_content_size(bomb) == -1
    assert f"at most {LIMIT} bytes" in rejection(Codec.ZSTD, bomb)


def test_a_zstd_frame_that_lies_about_its_size_is_rejected() -> None:
    honest = bytearray(zstandard.ZstdCompressor().compress(TEXT))
    honest[6] ^= 0x01  # the second byte of the stated size
    rejection(Codec.ZSTD, bytes(honest))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_truncated_frame_is_rejected(codec: Codec) -> None:
    assert "as one frame" in rejection(codec, compress(codec, TEXT)[:-9])


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"", b"no frame at all", TEXT])
def test_an_invalid_frame_is_rejected(codec: Codec, data: bytes) -> None:
    assert codec.name.lower() in rejection(codec, data)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_bytes_after_the_frame_are_rejected(codec: Codec) -> None:
    assert "bytes follow its end" in rejection(codec, compress(codec, TEXT) + b"more")


def test_frames_of_other_encoders_are_read() -> None:
    assert decompress(Codec.GZIP, zlib.compress(TEXT, 9, 31), max_bytes=LIMIT) == TEXT
    checked = lz4.frame.compress(TEXT, content_checksum=True, block_size=4)
    assert decompress(Codec.LZ4, checked, max_bytes=LIMIT) == TEXT
    strong = zstandard.ZstdCompressor(level=19, write_content_size=False).compress(TEXT)
    assert decompress(Codec.ZSTD, strong, max_bytes=LIMIT) == TEXT


def test_an_unknown_codec_names_the_known_ones() -> None:
    with pytest.raises(TidelogError, match=r"codec 9 is not known.*3 \(zstd\)"):
        codec_of(9)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_a_frame_that_understates_its_size_fails_when_it_exceeds_that(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that counts as cheap to open by its stated size is really cheap."""
    made = 0
    extend = compression._extend

    def counted(plain: bytearray, piece: bytes, bound: compression._Bound) -> None:
        nonlocal made
        made += len(piece)
        extend(plain, piece, bound)

    monkeypatch.setattr(compression, "_extend", counted)
    if codec is Codec.GZIP:
        lying = compress(codec, bytes(64 << 20))[:-4] + (100).to_bytes(4, "little")
    else:
        unsized = lz4.frame.compress(bytes(64 << 20), store_size=False)
        begin: bytes = lz4.frame.LZ4FrameCompressor().begin(source_size=100)
        lying = begin + unsized[7:]
    assert compression.stated_size(codec, lying) == 100
    assert "it says that it holds 100 bytes, and holds more" in rejection(codec, lying, 64 << 20)
    assert made <= 1 << 20
