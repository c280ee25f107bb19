"""`tidelog produce`: produces the lines of stdin or a file as records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.operating.command_options import shared_options
from tidelog.cli.producer_options import (
    ACKS,
    DEFAULT_BATCH_BYTES,
    DEFAULT_LINGER_MS,
    AcksOption,
    BatchBytesOption,
    CompressionOption,
    IdempotenceOption,
    LingerOption,
    ProgressOption,
    producer_settings,
)
from tidelog.cli.producing import InputFormat, OnError, ProduceRequest, produce_lines
from tidelog.cli.session import Session, key_separator_option, seconds_option, separator_from
from tidelog.model import MAX_INT32, Acks

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
        help="Of records that name none. Default: by the key; records without a key use the "
        "partitions in turn.",
    ),
]
_TimeoutOption = Annotated[
    float,
    seconds_option("--timeout", "How long the delivery of a batch is retried.", default=120.0),
]
_KeySeparatorOption = Annotated[
    str | None,
    key_separator_option("The part of a line before this is the key; \\t is a tab."),
]
_FormatOption = Annotated[
    InputFormat,
    typer.Option(
        "--format",
        help="What a line is. value: a value; json: an object with value or value_base64, and "
        "optionally key or key_base64, headers, partition and timestamp_ms, as consume --format "
        "json prints it.",
    ),
]
_IgnorePartitionsOption = Annotated[
    bool,
    typer.Option(
        "--ignore-partitions",
        help="With --format json: the partition of a line does not count, for a topic with other "
        "partitions.",
    ),
]
_OnErrorOption = Annotated[
    OnError,
    typer.Option(
        "--on-error",
        help="After a line that is no record, or is too large: skip it, or stop. Lines before it "
        "are delivered.",
    ),
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


@shared_options()
async def produce(
    session: Session,
    topic: TopicArgument,
    file: _FileOption = None,
    input_format: _FormatOption = InputFormat.VALUE,
    key_separator: _KeySeparatorOption = None,
    partition: _PartitionOption = None,
    ignore_partitions: _IgnorePartitionsOption = False,
    on_error: _OnErrorOption = OnError.SKIP,
    acks: AcksOption = "all",
    compression: CompressionOption = "none",
    batch_bytes: BatchBytesOption = DEFAULT_BATCH_BYTES,
    linger_ms: LingerOption = DEFAULT_LINGER_MS,
    timeout: _TimeoutOption = 120.0,
    producer_name: _ProducerNameOption = None,
    idempotence: IdempotenceOption = True,
    progress: ProgressOption = None,
) -> ExitStatus:
    """Produce each line of stdin, or of a file, as a record.

    A line ends at its newline, which is not part of the record. With --format json a line is a
    record with key, headers, partition and time.

    A summary goes to stderr, or with --json to stdout. Lines that were not delivered are named with
    the reason, and the exit status is not 0. Each line is written once, even if the leader changes.
    With --acks 0 or 1, or --no-idempotence, a retry may write lines twice. Running the command
    again after a failure may always do so.

    Example: printf 'north:calm\\nsouth:storm\\n' | tidelog produce sea -k :

    Example: tidelog consume sea --json | tidelog produce bay --format json
    """
    if producer_name is not None and (ACKS[acks] is not Acks.ALL or not idempotence):
        raise typer.BadParameter(
            "a name needs an idempotent producer: leave out --acks and --no-idempotence",
            param_hint="--producer-name",
        )
    _check_format(input_format, key_separator, ignore_partitions)
    settings = producer_settings(
        acks, compression, batch_bytes, linger_ms, timeout, idempotence=idempotence
    )
    request = ProduceRequest(
        topic,
        partition,
        input_format,
        separator_from(key_separator),
        ignore_partitions,
        file,
        on_error,
        progress,
        settings | {"producer_name": producer_name},
    )
    return await produce_lines(session, request)


def _check_format(
    input_format: InputFormat, key_separator: str | None, ignore_partitions: bool
) -> None:
    is_json = input_format is InputFormat.JSON
    if is_json and key_separator is not None:
        raise typer.BadParameter(
            "a JSON line has its key in the field key; leave out --key-separator",
            param_hint="--key-separator",
        )
    if ignore_partitions and not is_json:
        raise typer.BadParameter(
            "only JSON lines name partitions; add --format json", param_hint="--ignore-partitions"
        )
