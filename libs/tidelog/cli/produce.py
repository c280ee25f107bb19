"""`tidelog produce`: produces the lines of stdin or a file as records."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.lines import Line, LineSplitter
from tidelog.cli.operating.options import shared_options
from tidelog.cli.output import progress_bar, write_error, write_json, write_note
from tidelog.cli.produce_tally import ProduceTally
from tidelog.cli.session import Session, key_separator_option, seconds_option, separator_from
from tidelog.errors import unknown_partition
from tidelog.model import MAX_INT32, Acks, Codec
from tidelog.record_limits import HIGHEST_MAX_BATCH_BYTES

if TYPE_CHECKING:
    from tidelog.cli.line_sender import LineSender
    from tidelog.client import Producer
    from tidelog.client.descriptions import TopicDescription

# The longest time that a leader may wait for its replicas.
REQUEST_TIMEOUT_MS = 30_000
MAX_LINGER_MS = 3_600_000


_ACKS = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL}


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    topic: str
    partition: int | None
    key_separator: bytes | None
    file: Path | None
    acks: Acks
    settings: dict[str, Any]


_FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        exists=True,
        dir_okay=False,
        readable=True,
        show_default=False,
        help="Read lines from this file instead of stdin.",
    ),
]
_PartitionOption = Annotated[
    int | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        max=MAX_INT32,
        show_default=False,
        help="Default: by the key; records without a key use the partitions in turn.",
    ),
]
_TimeoutOption = Annotated[
    float, seconds_option("--timeout", "How long the delivery of a batch is retried.")
]
_KeySeparatorOption = Annotated[
    str | None,
    key_separator_option("The part of a line before this is the key; \\t is a tab."),
]
_ProducerNameOption = Annotated[
    str | None,
    typer.Option(
        "--producer-name",
        metavar="NAME",
        show_default=False,
        help="Only one producer at a time may use it; a new one fences the others.",
    ),
]
_IdempotenceOption = Annotated[
    bool,
    typer.Option(
        "--idempotence/--no-idempotence",
        help="With --acks all: a batch that is sent again is written once, and in order.",
    ),
]


@shared_options()
async def produce(
    session: Session,
    topic: TopicArgument,
    file: _FileOption = None,
    key_separator: _KeySeparatorOption = None,
    partition: _PartitionOption = None,
    acks: Annotated[
        Literal["0", "1", "all"],
        typer.Option("--acks", help="Replicas that must have a record: none, leader, all in sync."),
    ] = "all",
    compression: Annotated[
        Literal["none", "gzip", "lz4", "zstd"],
        typer.Option("--compression", help="How batches are compressed."),
    ] = "none",
    batch_bytes: Annotated[
        int,
        typer.Option("--batch-bytes", min=1, max=MAX_INT32, help="Size at which a batch is sent."),
    ] = 64 << 10,
    linger_ms: Annotated[
        int,
        typer.Option(
            "--linger-ms",
            min=0,
            max=MAX_LINGER_MS,
            help="Longest wait of a smaller batch (100 ms more until its leader has answered).",
        ),
    ] = 5,
    timeout: _TimeoutOption = 120.0,
    producer_name: _ProducerNameOption = None,
    idempotence: _IdempotenceOption = True,
) -> ExitStatus:
    """Produce each line of stdin, or of a file, as a record.

    A line ends at its newline, which is not part of the record. A summary goes to stderr, or with
    --json to stdout. Lines that were not delivered are named with the reason, and the exit status
    is not 0. Each line is written once, even if the leader changes. With --acks 0 or 1, or
    --no-idempotence, a retry may write lines twice. Running the command again after a failure may
    always do so.

    Example: printf 'north:calm\\nsouth:storm\\n' | tidelog produce sea -k :
    """
    if producer_name is not None and (_ACKS[acks] is not Acks.ALL or not idempotence):
        raise typer.BadParameter(
            "a name needs an idempotent producer: leave out --acks and --no-idempotence",
            param_hint="--producer-name",
        )
    timeout_ms = round(timeout * 1000)
    request = ProduceRequest(
        topic,
        partition,
        separator_from(key_separator),
        file,
        _ACKS[acks],
        {
            "codec": Codec[compression.upper()],
            "batch_bytes": batch_bytes,
            "linger_ms": linger_ms,
            "delivery_timeout_ms": timeout_ms,
            "idempotent": None if idempotence else False,
            "producer_name": producer_name,
            # A longer request would delay the outcome beyond the timeout.
            "request_timeout_ms": min(REQUEST_TIMEOUT_MS, timeout_ms),
        },
    )
    return await _produce(session, request)


async def _producer(session: Session, request: ProduceRequest) -> Producer:
    try:
        return await session.producer(
            acks=request.acks,
            # The topic's max_batch_bytes is the limit, not the client's own.
            max_request_bytes=HIGHEST_MAX_BATCH_BYTES,
            **request.settings,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


async def _produce(session: Session, request: ProduceRequest) -> ExitStatus:
    from tidelog.cli.input_chunks import FILE_CHUNK_BYTES, stdin_reader
    from tidelog.cli.line_sender import LineSender
    from tidelog.client.clock import SystemClock

    # Checked before any input is consumed.
    async with await session.admin() as admin:
        _check_partition(await admin.describe_topic(request.topic), request.partition)
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    tally = ProduceTally()
    with _opened(request.file) as file:
        total_bytes = 0 if request.file is None else request.file.stat().st_size
        read = stdin_reader() if file is None else lambda: file.read(FILE_CHUNK_BYTES)
        bar = progress_bar(str(request.file), total_bytes) if file else nullcontext(_not_shown)
        with bar as advance:
            async with await _producer(session, request) as producer:
                sender = LineSender(
                    producer, request.topic, request.partition, request.key_separator, tally
                )
                interrupted = await _send_lines(_lines(read, advance), sender, tally)
                await producer.flush()
                await sender.wait_for_outcomes()
    seconds = (clock.monotonic_ms() - started_ms) / 1000
    _report(session, request, tally, seconds)
    if interrupted:
        write_note("Interrupted; the rest of the input was not read.")
    return ExitStatus.INTERRUPTED if interrupted else tally.status


def _check_partition(topic: TopicDescription, partition: int | None) -> None:
    count = topic.partition_count
    if partition is not None and partition >= count:
        raise unknown_partition(topic.name, partition, count)


def _opened(file: Path | None) -> Any:
    return nullcontext() if file is None else file.open("rb", buffering=0)


def _not_shown(_: int) -> None:
    """Shows no progress, for input of unknown length."""


async def _lines(
    read: Callable[[], bytes], advance: Callable[[int], None]
) -> AsyncGenerator[list[Line]]:
    """Yields the lines that end in each chunk of input."""
    from tidelog.cli.input_chunks import read_chunks

    splitter = LineSplitter()
    async with aclosing(read_chunks(read)) as chunks:
        async for chunk in chunks:
            yield list(splitter.feed(chunk))
            advance(len(chunk))
    yield list(splitter.end())


async def _send_lines(
    chunks: AsyncGenerator[list[Line]], sender: LineSender, tally: ProduceTally
) -> bool:
    """Sends until the input ends, or an error or Ctrl-C stops it. Returns True if interrupted."""
    import asyncio

    async with aclosing(chunks):
        try:
            async for lines in chunks:
                sending = asyncio.create_task(sender.send(lines))
                try:
                    await asyncio.shield(sending)
                except asyncio.CancelledError:
                    # Lines that were read are still delivered; a second Ctrl-C ends that, too.
                    await sending
                    raise
                if tally.stopped:
                    break
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None, "this is a coroutine"
            task.uncancel()
            return True
    return False


def _report(session: Session, request: ProduceRequest, tally: ProduceTally, seconds: float) -> None:
    report = tally.report_lines()
    if report:
        write_error("\n".join(report))
        if tally.stopped:
            write_note(
                f"Stopped; to continue, start again at line {tally.first_unsent:,}. Some lines "
                "from there on may have been delivered, and would be written twice."
            )
    acknowledged = request.acks is not Acks.NONE
    if not session.as_json:
        write_note(tally.summary(request.topic, seconds, acknowledged=acknowledged))
        return
    write_json(
        {
            "topic": request.topic,
            "delivered": tally.delivered,
            "delivered_bytes": tally.delivered_bytes,
            "acknowledged": acknowledged,
            "unsent": tally.unsent,
            "first_unsent_line": tally.first_unsent,
            "unsent_lines": [unsent._asdict() for unsent in sorted(tally.named)],
            "seconds": seconds,
        }
    )
