"""`tidelog consume`: writes records of a topic to stdout."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.operating.command_options import shared_options
from tidelog.cli.positions import AtTime, Position, parse_moment, parse_position
from tidelog.cli.record_decoding import DECODE_FORMS, ValueDecoding, parse_decoder
from tidelog.cli.record_filter import RecordFilter, parse_pattern
from tidelog.cli.record_format import RecordFormat
from tidelog.cli.record_output import RecordOutput
from tidelog.cli.record_reading import ReadRequest, read
from tidelog.cli.session import Session, key_separator_option, seconds_option, separator_from
from tidelog.model import MAX_INT32, OffsetPosition, OnDamage

# `--until`: the end that each log has when the command starts.
_LOG_END = "end"

_FormatOption = Annotated[
    RecordFormat,
    typer.Option(
        "--format",
        help="value: one value a line; raw: only the values' bytes; json: one document a line, "
        "which produce --format json accepts; detail: one line with place, time, key, value and "
        "headers, long ones cut.",
    ),
]
_FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        show_default=False,
        help="beginning (the default), end, an offset, time:2026-01-31T08:30:00Z or an age as -5m.",
    ),
]
_SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        show_default=False,
        help="Instead of --from: begin in each partition at the first record at or after this "
        "time: an age as 10m or 7d, a time as 2026-01-31T08:30:00Z, or milliseconds since 1970.",
    ),
]
_UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        show_default=False,
        help="End in each partition before the first record at or after this time, as for --since; "
        "end (the default): where the log ends at the start of the command.",
    ),
]
_KeyOption = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", show_default=False, help="Only records of this key."),
]
_KeyPartitionOption = Annotated[
    bool,
    typer.Option(
        "--key-partition",
        help="With --key: read only the partition that the default partitioner chooses for it. "
        "Misses records that a producer sent elsewhere, and those from before partitions were "
        "added.",
    ),
]
_GrepOption = Annotated[
    str | None,
    typer.Option(
        "--grep",
        metavar="REGEX",
        show_default=False,
        help="Only records with this regular expression (Python's syntax) in the key, the value, "
        "as --decode shows it, or a header as name=value.",
    ),
]
_DecodeOption = Annotated[
    str | None,
    typer.Option(
        "--decode",
        metavar="ENCODING",
        show_default=False,
        help=f"Show values decoded: {DECODE_FORMS}; FILE is a descriptor set of protoc "
        "--include_imports --descriptor_set_out=FILE.",
    ),
]
_TimeoutOption = Annotated[
    float,
    seconds_option(
        "--timeout",
        "Without --follow: how long to wait for a record that is known to exist.",
        default=30.0,
    ),
]
_KeySeparatorOption = Annotated[
    str | None,
    key_separator_option("Print each record's key and this before its value; \\t is a tab."),
]
_PartitionsOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, max=MAX_INT32, help="May be repeated. Default: all."),
]
_MaxOption = Annotated[
    int | None,
    typer.Option(
        "--max", "-n", min=0, show_default=False, help="Stop after showing this many records."
    ),
]
_OnDamageOption = Annotated[
    OnDamage,
    typer.Option(
        "--on-damage",
        help="For records that are damaged on the last disk that held them: fail, or skip "
        "them with a warning.",
    ),
]


# Ctrl-C is the normal end of a command that follows a topic.
@shared_options(streams=True, when_interrupted=ExitStatus.DONE)
async def consume(
    session: Session,
    topic: TopicArgument,
    partition: _PartitionsOption = None,
    start: _FromOption = None,
    since: _SinceOption = None,
    until: _UntilOption = None,
    key: _KeyOption = None,
    key_partition: _KeyPartitionOption = False,
    grep: _GrepOption = None,
    max_records: _MaxOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records, until Ctrl-C.")
    ] = False,
    record_format: _FormatOption = RecordFormat.VALUE,
    decode: _DecodeOption = None,
    key_separator: _KeySeparatorOption = None,
    on_damage: _OnDamageOption = OnDamage.RAISE,
    timeout: _TimeoutOption = 30.0,
) -> None:
    """Print the existing records of a topic; with --follow also new ones.

    With --key or --grep, stderr has at the end how many records were scanned and shown.

    Example: tidelog consume sea --since 10m --grep storm --json
    """
    now_ms = time.time_ns() // 1_000_000
    key_bytes = None if key is None else os.fsencode(key)
    _check_choice(key_partition, key, partition)
    decoding = _decoding(decode)
    request = ReadRequest(
        topic,
        tuple(sorted(set(partition or ()))),
        _start(start, since, now_ms),
        follow,
        round(timeout * 1000),
        key_bytes if key_partition else None,
        _until(until, follow, now_ms),
    )
    output = RecordOutput(
        RecordFormat.JSON if session.as_json else record_format,
        separator_from(key_separator),
        max_records,
        _filter(key_bytes, grep, decoding),
        decoding,
    )
    async with await session.consumer(
        offsets_timeout_ms=request.timeout_ms, on_damage=on_damage
    ) as consumer:
        with output.summarized():
            await read(consumer, request, output)


def _start(position: str | None, since: str | None, now_ms: int) -> Position:
    if position is not None and since is not None:
        raise typer.BadParameter(
            "--from and --since both say where to begin; give one of them", param_hint="--since"
        )
    if since is not None:
        return AtTime(_moment(since, now_ms, "--since"))
    if position is None:
        return OffsetPosition.EARLIEST
    try:
        return parse_position(position, now_ms)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from") from error


def _until(until: str | None, follow: bool, now_ms: int) -> int | None:
    if until is not None and follow:
        raise typer.BadParameter(
            "--follow has no end; leave out --follow or --until", param_hint="--until"
        )
    return None if until in (None, _LOG_END) else _moment(until, now_ms, "--until")


def _moment(text: str, now_ms: int, option: str) -> int:
    try:
        return parse_moment(text, now_ms)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _check_choice(key_partition: bool, key: str | None, partitions: list[int] | None) -> None:
    if not key_partition:
        return
    if key is None:
        raise typer.BadParameter("it needs a key; give --key", param_hint="--key-partition")
    if partitions:
        raise typer.BadParameter(
            "--partition chooses partitions, too; give one of them", param_hint="--key-partition"
        )


def _decoding(text: str | None) -> ValueDecoding | None:
    if text is None:
        return None
    try:
        return ValueDecoding(text, parse_decoder(text))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--decode") from error


def _filter(key: bytes | None, grep: str | None, decoding: ValueDecoding | None) -> RecordFilter:
    try:
        pattern = None if grep is None else parse_pattern(grep)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--grep") from error
    return RecordFilter(key, pattern, None if decoding is None else decoding.search_text)
