"""The commands of `tidelog bench`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidelog.cli.bench.payload import LEAST_RECORD_BYTES, MOST_KEYS, MOST_RECORD_BYTES
from tidelog.cli.completion import TopicArgument
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.producer_options import (
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
from tidelog.cli.session import MOST_SECONDS, Session, seconds_option
from tidelog.cli.unit_options import duration_option, size_option
from tidelog.model import MAX_INT32

MOST_RECORDS = 10**12
MOST_RATE = 10**7
DEFAULT_MAX_IN_FLIGHT = 100_000
MOST_IN_FLIGHT = 1_000_000
DEFAULT_DURATION_MS = 10_000
_MOST_DURATION_MS = round(MOST_SECONDS * 1000)

PRODUCE_JSON = (
    "topic, sent, acknowledged, failed, errors (count by code), acknowledged_bytes, seconds, "
    "records_per_second, bytes_per_second, requested_records_per_second (null: no limit), "
    "latency_ms (null: no record was acknowledged; p50, p95, p99, max), client_cpu_percent (of one "
    "core), interrupted."
)
CONSUME_JSON = (
    "topic, records, batches, size_bytes, seconds, records_per_second, bytes_per_second, "
    "end_to_end_ms (null: there were no records of a running bench produce; p50, p95, p99, max), "
    "future_records (due after they were read: the clocks differ), client_cpu_percent (of one "
    "core), interrupted."
)

_RecordsOption = Annotated[
    int | None,
    typer.Option(
        "--records", "-n", min=1, max=MOST_RECORDS, show_default=False, help="End after so many."
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
        help="Only this partition. Default: all.",
    ),
]


def _duration_option(default: str) -> Any:
    return duration_option(
        "--duration",
        help_text=f"End after this time, as 30s or 5m. Default: {default}.",
        least_ms=100,
        most_ms=_MOST_DURATION_MS,
        bare_unit_ms=1_000,
    )


_RecordSizeOption = Annotated[
    int,
    size_option(
        "--record-size",
        help_text="Size of a value, as 100, 1KiB or 1MiB.",
        least_bytes=LEAST_RECORD_BYTES,
        most_bytes=MOST_RECORD_BYTES,
        default="1 KiB",
    ),
]
_RateOption = Annotated[
    int | None,
    typer.Option(
        "--rate",
        metavar="RECORDS",
        min=1,
        max=MOST_RATE,
        show_default=False,
        help="Records per second. Default: as fast as possible.",
    ),
]
_KeysOption = Annotated[
    int, typer.Option("--keys", min=0, max=MOST_KEYS, help="Different keys; 0: no keys.")
]
_MaxInFlightOption = Annotated[
    int,
    typer.Option(
        "--max-in-flight",
        min=1,
        max=MOST_IN_FLIGHT,
        help="Records without an answer; 1 waits for each.",
    ),
]
_SeedOption = Annotated[
    int, typer.Option("--seed", min=0, max=MAX_INT32, help="Chooses keys and texts.")
]


@shared_options("yes")
async def produce(
    session: Session,
    options: MutationOptions,
    topic: TopicArgument,
    records: _RecordsOption = None,
    duration: Annotated[
        int | None, _duration_option("10 s, or without a limit if --records is given")
    ] = None,
    record_size: _RecordSizeOption = 1024,
    rate: _RateOption = None,
    keys: _KeysOption = 0,
    partition: _PartitionOption = None,
    max_in_flight: _MaxInFlightOption = DEFAULT_MAX_IN_FLIGHT,
    acks: AcksOption = "all",
    compression: CompressionOption = "none",
    batch_bytes: BatchBytesOption = DEFAULT_BATCH_BYTES,
    linger_ms: LingerOption = DEFAULT_LINGER_MS,
    idempotence: IdempotenceOption = True,
    timeout: Annotated[
        float,
        seconds_option("--timeout", "How long the delivery of a batch is retried.", default=30.0),
    ] = 30.0,
    seed: _SeedOption = 1,
    progress: ProgressOption = None,
) -> ExitStatus:
    """Write records to a topic, and measure throughput and the latency of acknowledgements.

    The topic has to exist. If it holds records, the command asks for confirmation: the load stays
    in it. Values are texts that compress by about three to one.

    With --rate the latency of a record counts from when it was due. Without, it counts from the
    call that sends it, and includes the wait for room in the buffer, so it is long.
    """
    from tidelog.cli.bench.produce_command import LoadRequest, run_produce
    from tidelog.cli.bench.produce_load import LoadSettings

    if records is None and duration is None:
        duration = DEFAULT_DURATION_MS
    load = LoadSettings(
        topic,
        record_size,
        records,
        None if duration is None else duration / 1000,
        rate,
        partition,
        max_in_flight,
    )
    settings = producer_settings(
        acks, compression, batch_bytes, linger_ms, timeout, idempotence=idempotence
    )
    request = LoadRequest(load, keys, seed, settings, options.yes, progress)
    return await run_produce(session, request)


@shared_options()
async def consume(
    session: Session,
    topic: TopicArgument,
    records: _RecordsOption = None,
    duration: Annotated[
        int | None,
        _duration_option(
            "at the end that the log has at the start; with --from end and no --records, 10 s"
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="beginning, end, an offset, time:2026-01-31T08:30:00Z or an age as -5m.",
        ),
    ] = "beginning",
    partition: _PartitionOption = None,
    timeout: Annotated[
        float,
        seconds_option(
            "--timeout", "Without --duration: how long to wait for the next record.", default=30.0
        ),
    ] = 30.0,
    progress: ProgressOption = None,
) -> ExitStatus:
    """Read a topic, and measure throughput and the time from producers to this consumer.

    The end-to-end time is measured for records that bench produce writes meanwhile: from when a
    record was due until this command had it. On different machines it includes the difference of
    their clocks.
    """
    from tidelog.cli.bench.consume_command import ConsumeRequest, run_consume

    request = ConsumeRequest(
        topic,
        partition,
        start,
        records,
        None if duration is None else duration / 1000,
        timeout,
        progress,
    )
    return await run_consume(session, request)
