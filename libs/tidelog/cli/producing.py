"""Sends the lines of stdin or a file to a topic, for `produce`."""

from __future__ import annotations

import enum
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.json_records import MAX_JSON_LINE_BYTES, JsonRecords
from tidelog.cli.lines import MAX_LINE_BYTES, Line, LineRecord, LineSplitter, to_record
from tidelog.cli.output import write_error, write_json, write_note
from tidelog.cli.produce_tally import ProduceTally
from tidelog.cli.progress_line import progress_shown
from tidelog.cli.session import Session
from tidelog.errors import unknown_partition
from tidelog.model import Acks
from tidelog.record_limits import HIGHEST_MAX_BATCH_BYTES

if TYPE_CHECKING:
    from tidelog.cli.line_sender import LineSender
    from tidelog.client import Producer
    from tidelog.client.descriptions import TopicDescription


class InputFormat(enum.StrEnum):
    """What a line of the input is: a value, or a record as a JSON object."""

    VALUE = "value"
    JSON = "json"


class OnError(enum.StrEnum):
    """What happens after a line that is no record, or is rejected."""

    SKIP = "skip"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """What to produce.

    - `progress`: None to decide by the terminal.
    - `settings`: arguments of `Producer`.
    """

    topic: str
    partition: int | None
    input_format: InputFormat
    key_separator: bytes | None
    ignore_partitions: bool
    file: Path | None
    on_error: OnError
    progress: bool | None
    settings: dict[str, Any]

    @property
    def max_line_bytes(self) -> int:
        return MAX_JSON_LINE_BYTES if self.input_format is InputFormat.JSON else MAX_LINE_BYTES

    @property
    def shows_progress(self) -> bool | None:
        """None: if stderr is a terminal. While lines are typed, progress would overwrite them."""
        is_typed = self.file is None and sys.stdin.isatty()
        return False if self.progress is None and is_typed else self.progress

    def parser(self, partition_count: int) -> Callable[[Line], LineRecord]:
        if self.input_format is InputFormat.JSON:
            return JsonRecords(partition_count, self.ignore_partitions).parse
        return partial(to_record, separator=self.key_separator)


async def _producer(session: Session, request: ProduceRequest) -> Producer:
    try:
        return await session.producer(
            # The topic's max_batch_bytes is the limit, not the client's own.
            max_request_bytes=HIGHEST_MAX_BATCH_BYTES,
            **request.settings,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


async def produce_lines(session: Session, request: ProduceRequest) -> ExitStatus:
    """Raises `TidelogError` for an unknown topic or partition, before any input is read."""
    from tidelog.cli.input_chunks import FILE_CHUNK_BYTES, stdin_reader
    from tidelog.cli.line_sender import LineSender
    from tidelog.client.clock import SystemClock

    async with await session.admin() as admin:
        described = await admin.describe_topic(request.topic)
    _check_partition(described, request.partition)
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    tally = ProduceTally(stops_at_lines=request.on_error is OnError.STOP)
    with _opened(request.file) as file:
        total_bytes = 0 if request.file is None else request.file.stat().st_size
        read = stdin_reader() if file is None else lambda: file.read(FILE_CHUNK_BYTES)
        progress = _Progress(tally, total_bytes)
        async with (
            progress_shown(progress.line, request.shows_progress),
            await _producer(session, request) as producer,
        ):
            sender = LineSender(
                producer,
                request.topic,
                request.partition,
                request.parser(described.partition_count),
                tally,
            )
            lines = _lines(read, progress.advance, request.max_line_bytes)
            interrupted = await _send_lines(lines, sender, tally)
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


@dataclass(slots=True)
class _Progress:
    """`total_bytes`: size of the input; 0: not known."""

    tally: ProduceTally
    total_bytes: int
    read_bytes: int = 0
    delivered_before: int = 0

    def advance(self, count: int) -> None:
        self.read_bytes += count

    def line(self, seconds: float) -> str:
        share = min(1.0, self.read_bytes / self.total_bytes) if self.total_bytes else None
        text = self.tally.progress(seconds, self.delivered_before, share)
        self.delivered_before = self.tally.delivered
        return text


async def _lines(
    read: Callable[[], bytes], advance: Callable[[int], None], max_line_bytes: int
) -> AsyncGenerator[list[Line]]:
    """Yields the lines that end in each chunk of input."""
    from tidelog.cli.input_chunks import read_chunks

    splitter = LineSplitter(max_line_bytes)
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
    acknowledged = request.settings["acks"] is not Acks.NONE
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
