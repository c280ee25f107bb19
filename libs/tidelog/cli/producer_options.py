"""Options of a producer, for `produce` and `bench produce`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from tidelog.cli.unit_options import duration_option, size_option
from tidelog.model import MAX_INT32, Acks, Codec

# The longest time that a leader may wait for its replicas.
REQUEST_TIMEOUT_MS = 30_000
MAX_LINGER_MS = 3_600_000

AcksWord = Literal["0", "1", "all"]
CompressionWord = Literal["none", "gzip", "lz4", "zstd"]
ACKS: dict[str, Acks] = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL}

AcksOption = Annotated[
    AcksWord,
    typer.Option("--acks", help="Replicas that must have a record: none, leader, all in sync."),
]
CompressionOption = Annotated[
    CompressionWord, typer.Option("--compression", help="How batches are compressed.")
]
BatchBytesOption = Annotated[
    int,
    size_option(
        "--batch-bytes",
        help_text="Size at which a batch is sent, as 64KiB.",
        least_bytes=1,
        most_bytes=MAX_INT32,
        default="64 KiB",
    ),
]
LingerOption = Annotated[
    int,
    duration_option(
        "--linger-ms",
        help_text="Longest wait of a smaller batch, as 5 or 5ms (100 ms more until its leader has "
        "answered).",
        least_ms=0,
        most_ms=MAX_LINGER_MS,
        default="5 ms",
    ),
]
IdempotenceOption = Annotated[
    bool,
    typer.Option(
        "--idempotence/--no-idempotence",
        help="With --acks all: a batch that is sent again is written once, and in order.",
    ),
]
ProgressOption = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        show_default=False,
        help="Report progress and rate on stderr. Default: if it is a terminal, and no input is "
        "typed.",
    ),
]
DEFAULT_BATCH_BYTES = 64 << 10
DEFAULT_LINGER_MS = 5


def producer_settings(
    acks: AcksWord,
    compression: CompressionWord,
    batch_bytes: int,
    linger_ms: int,
    timeout_seconds: float,
    *,
    idempotence: bool,
) -> dict[str, Any]:
    """Returns arguments of `Producer`."""
    timeout_ms = round(timeout_seconds * 1000)
    return {
        "acks": ACKS[acks],
        "codec": Codec[compression.upper()],
        "batch_bytes": batch_bytes,
        "linger_ms": linger_ms,
        "delivery_timeout_ms": timeout_ms,
        "idempotent": None if idempotence else False,
        # A longer request would delay the outcome beyond the timeout.
        "request_timeout_ms": min(REQUEST_TIMEOUT_MS, timeout_ms),
    }
