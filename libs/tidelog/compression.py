"""Compression codecs of batches. Decompression is bounded.

Compressed data is one gzip member, LZ4 frame or zstd frame, as any library makes it of one
buffer. The receiver of a batch trusts neither its size nor the size that its frame states.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import lz4.frame
import zstandard

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Codec
from tidelog.record_limits import RECORD_LIMITS

DEFAULT_MAX_DECOMPRESSED_BYTES = RECORD_LIMITS.max_decoded_bytes

# zlib's window for the gzip format.
_GZIP_WBITS = 31
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
# RFC 8878 recommends that decoders support this size, and encoders may use it on tiny inputs.
_MIN_ZSTD_WINDOW_BYTES = 8 << 20
_MAX_ZSTD_WINDOW_BYTES = 1 << 30

# Data is decompressed in pieces of this size, so that no thread waits long for the interpreter
# lock. A result above _COPIED_BYTES is returned as a bytearray, without a copy.
_PIECE_BYTES = 256 << 10
_COPIED_BYTES = 4 << 20

Plain = bytes | bytearray

_KNOWN = ", ".join(f"{codec.value} ({codec.name.lower()})" for codec in Codec)


def codec_of(value: int) -> Codec:
    """Returns the codec of a header. Raises `TidelogError` (INVALID_BATCH) if it is unknown."""
    try:
        return Codec(value)
    except ValueError:
        raise _invalid(f"codec {value} is not known; known codecs: {_KNOWN}") from None


def compress(codec: Codec, data: bytes) -> bytes:
    if codec is Codec.NONE:
        return data
    if codec is Codec.LZ4:
        compressed: bytes = lz4.frame.compress(data, content_checksum=False)
        return compressed
    if codec is Codec.ZSTD:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
    return zlib.compress(data, _GZIP_LEVEL, _GZIP_WBITS)


def decompress(codec: Codec, data: bytes, *, max_bytes: int) -> Plain:
    """Decompresses at most `max_bytes`. Raises `TidelogError` (INVALID_BATCH) for more, and for
    bytes that are not exactly one frame of this codec."""
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return data
    if codec is Codec.ZSTD:
        return _decompress_zstd(data, max_bytes)
    # Decompression fails where a frame exceeds its stated size. Callers rely on that size to
    # decide whether a batch is cheap to decode.
    bound = _Bound(codec, max_bytes, stated_size(codec, data))
    return _decompress_lz4(data, bound) if codec is Codec.LZ4 else _decompress_gzip(data, bound)


def stated_size(codec: int, data: bytes) -> int | None:
    """Returns the size of the content that a frame states, without decompressing it.

    None if the frame states no size or is no frame. The statement may be wrong.
    """
    try:
        if codec == Codec.NONE:
            return len(data)
        if codec == Codec.ZSTD:
            stated: int = zstandard.frame_content_size(data)
            return stated if stated >= 0 else None
        if codec == Codec.LZ4:
            size: int = lz4.frame.get_frame_info(data)["content_size"]
            return size or None
    except (zstandard.ZstdError, RuntimeError, ValueError):
        return None
    # A gzip member ends with its size.
    return int.from_bytes(data[-4:], "little") if len(data) > 4 else None


class _Bound(NamedTuple):
    """The limits on one frame. `stated`: the size in bytes that the frame states, or None."""

    codec: Codec
    max_bytes: int
    stated: int | None

    def check(self, size: int) -> None:
        if size > self.max_bytes:
            raise _too_large(self.max_bytes)
        if self.stated is not None and size > self.stated:
            why = f"it says that it holds {self.stated} bytes, and holds more"
            if self.codec is Codec.GZIP:
                why += ", or it is cut short, or other bytes follow its end"
            raise _not_one_frame(self.codec, why)


def _decompress_gzip(data: bytes, bound: _Bound) -> Plain:
    decompressor = zlib.decompressobj(_GZIP_WBITS)
    plain = bytearray()
    rest, position = b"", 0
    try:
        while not decompressor.eof:
            if not rest:
                rest = data[position : position + _PIECE_BYTES]
                position += len(rest)
            piece = decompressor.decompress(rest, _PIECE_BYTES)
            if not rest and not piece:
                raise _not_one_frame(Codec.GZIP, "it is cut short")
            rest = decompressor.unconsumed_tail
            _extend(plain, piece, bound)
    except zlib.error as error:
        raise _not_one_frame(Codec.GZIP, str(error)) from None
    if decompressor.unused_data or position < len(data):
        raise _not_one_frame(Codec.GZIP, "bytes follow its end")
    return _handy(plain)


def _decompress_lz4(data: bytes, bound: _Bound) -> Plain:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    plain = bytearray()
    position = 0
    try:
        while not decompressor.eof:
            fed = b""
            if decompressor.needs_input:
                fed = data[position : position + _PIECE_BYTES]
                position += len(fed)
                if not fed:
                    raise _not_one_frame(Codec.LZ4, "it is cut short")
            _extend(plain, decompressor.decompress(fed, max_length=_PIECE_BYTES), bound)
    except RuntimeError as error:
        raise _not_one_frame(Codec.LZ4, str(error)) from None
    if decompressor.unused_data or position < len(data):
        raise _not_one_frame(Codec.LZ4, "bytes follow its end")
    return _handy(plain)


def _extend(plain: bytearray, piece: bytes, bound: _Bound) -> None:
    plain += piece
    bound.check(len(plain))


def _handy(plain: bytearray) -> Plain:
    """Returns `bytes`, unless the copy would take long."""
    return bytes(plain) if len(plain) <= _COPIED_BYTES else plain


def _decompress_zstd(data: bytes, max_bytes: int) -> bytes:
    window_bytes = min(max(max_bytes, _MIN_ZSTD_WINDOW_BYTES), _MAX_ZSTD_WINDOW_BYTES)
    try:
        # The library allocates the size that a frame states, whatever `max_output_size` is.
        stated_bytes = zstandard.frame_content_size(data)
        if stated_bytes > max_bytes:
            raise _too_large(max_bytes)
        return zstandard.ZstdDecompressor(max_window_size=window_bytes).decompress(
            data, max_output_size=max_bytes, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        # A frame that does not state its size ends here too when it outgrows the limit.
        raise _not_one_frame(Codec.ZSTD, f"{error} (at most {max_bytes} bytes)") from None


def _too_large(max_bytes: int) -> TidelogError:
    return _invalid(
        f"the batch holds more than {max_bytes} bytes once decompressed, a fixed limit: send "
        "smaller batches"
    )


def _not_one_frame(codec: Codec, why: str) -> TidelogError:
    return _invalid(
        f"the records are not {codec.name.lower()} as the header says: {why}; compress the "
        "whole RecordBatch as one frame, or set the codec that was used"
    )


def _invalid(message: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_BATCH, message)
