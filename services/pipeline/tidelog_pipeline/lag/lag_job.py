"""`python -m tidelog_pipeline lag`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tidelog.client import SyncAdmin, SyncConsumer
from tidelog.client.admin import Admin
from tidelog.client.clock import Clock, SystemClock
from tidelog.client.producer import Producer
from tidelog.client.service_states import ServiceStates
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import OffsetPosition
from tidelog.spark import register
from tidelog_pipeline.job_command import JobError, load_action, print_line
from tidelog_pipeline.job_runner import EXIT_DONE, run
from tidelog_pipeline.lag.lag_config import ACTIONS, LagConfig, RollupConfig, SampleConfig
from tidelog_pipeline.lag.rollup import samples_of, worst_followers
from tidelog_pipeline.lag.rollup_tables import LOCK, has_day, write
from tidelog_pipeline.lag.sample_writer import SampleWriter
from tidelog_pipeline.lag.sampler import LagSampler
from tidelog_pipeline.lag.samples import SLACK_MS, Days, day_of, incomplete_days
from tidelog_pipeline.session import spark_session

# The replication factor of a created topic, if there are enough brokers.
REPLICATION_FACTOR = 3
_FIRST_RECORD_MS = 5_000


def main(argv: Sequence[str]) -> int:
    config = load_action("lag", ACTIONS, argv)
    return run(config, lambda: _act(config))


def _act(config: LagConfig) -> int:
    if isinstance(config, SampleConfig):
        _prepare(config)
        asyncio.run(_sample(config, SystemClock()))
    elif isinstance(config, RollupConfig):
        with spark_session(config.service, config.spark_master, config.spark_conf) as spark:
            # Minutes, hours and days are in UTC.
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            register(spark)
            _roll_up(config, spark, SystemClock())
    return EXIT_DONE


def _prepare(config: SampleConfig) -> None:
    """Creates the topic if configured. Raises `JobError` if there is none."""
    with SyncAdmin(config.bootstrap) as admin:
        try:
            if config.create:
                brokers = len(admin.describe_cluster().brokers)
                admin.create_topic(config.topic, 1, min(REPLICATION_FACTOR, brokers))
            else:
                admin.describe_topic(config.topic)
        except TidelogError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise JobError(
                    f"there is no topic {config.topic} for samples; name one with --topic, or "
                    "create it with --create"
                ) from error
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


async def _sample(config: SampleConfig, clock: Clock) -> None:
    """Raises `JobError` if samples of the requested rounds were not written."""
    states = ServiceStates(config.bootstrap, clock)
    try:
        async with Producer(config.bootstrap) as producer, Admin(config.bootstrap) as admin:
            writer = SampleWriter(producer, admin, config.topic)
            sampler = LagSampler(states, writer, config.drivers, clock)
            work = asyncio.create_task(sampler.run(config.every_ms, config.rounds))
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, work.cancel)
            await work
    except asyncio.CancelledError:
        print_line("Stopped.")
        return
    if writer.unwritten:
        raise JobError(f"{writer.unwritten} samples were not written; the log has the reasons")


def _roll_up(config: RollupConfig, spark: SparkSession, clock: Clock) -> None:
    today = day_of(clock.wall_ms())
    last = config.until or today
    days = Days(config.since or min(last, today) - timedelta(days=1), last)
    with config.directory.held(LOCK):
        cut = incomplete_days(days, _oldest_of_cut_partitions(config))
        kept = [day for day in cut if has_day(config.directory, day)]
        for day in cut:
            what = "its tables stay as they are" if day in kept else "its tables lack them"
            print_line(f"{day}: the topic has deleted samples of it, or may have; {what}")
        chosen = [day for day in days.all if day not in kept]
        if not chosen:
            return
        samples = _samples(config, spark, days, kept).cache()
        try:
            write(config.directory, samples, chosen)
            _print_summary(samples)
        finally:
            samples.unpersist()


def _samples(
    config: RollupConfig, spark: SparkSession, days: Days, left_out: Sequence[object]
) -> DataFrame:
    records = (
        spark.read.format("tidelog")
        .options(
            **{
                "bootstrap.servers": config.bootstrap_servers,
                "subscribe": config.topic,
                "startingTimestamp": str(max(days.start_ms - SLACK_MS, 0)),
                "endingTimestamp": str(days.end_ms + SLACK_MS),
                "startingOffsetsByTimestampStrategy": "latest",
                "columns": "value",
            }
        )
        .load()
    )
    at = sf.col("at_ms")
    day = sf.date_format(sf.timestamp_millis(at), "yyyy-MM-dd")
    unknown = sf.col("kind").isNull()
    within = at.between(days.start_ms, days.end_ms - 1)
    found = samples_of(records).where(unknown | within)
    return found.where(unknown | ~day.isin([str(one) for one in left_out])) if left_out else found


def _oldest_of_cut_partitions(config: LagConfig) -> list[int]:
    """Returns the time of the first record of each partition that records were deleted from.

    In milliseconds since 1970; now for a partition without records. Raises `TidelogError` for
    an unknown topic.
    """
    with SyncConsumer(config.bootstrap) as consumer:
        partitions = consumer.assign_topic(config.topic)
        positions = consumer.ask(
            lambda one: one.offsets_with_epochs(OffsetPosition.EARLIEST, partitions)
        )
        found = []
        for partition in partitions:
            if positions[partition].offset:
                consumer.assign([partition])
                records = consumer.poll(_FIRST_RECORD_MS, 1)
                found.append(records[0].timestamp_ms if records else SystemClock().wall_ms())
        return found


def _print_summary(samples: DataFrame) -> None:
    counted = samples.groupBy("kind").count().collect()
    rows = {row["kind"]: row["count"] for row in counted}
    print_line(
        ", ".join(f"{n} of {k}" for k, n in sorted(rows.items(), key=str) if k) or "No samples."
    )
    if None in rows:
        print_line(f"{rows[None]} records of the topic are not samples")
    for row in worst_followers(samples, "day").orderBy("at", "rank").collect():
        print_line(
            f"{row.date} {row['rank']}. broker {row.who}: 99 % within {_number(row.lag_ms_p99)} "
            f"ms, at most {_number(row.lag_ms_max)} ms and {_number(row.lag_records_max)} records "
            f"(worst in {row.worst.topic}/{row.worst.partition}), in sync "
            f"{100 * (row.in_sync_share or 0):.1f} % of {row.samples} samples"
        )


def _number(measure: float | None) -> str:
    return "an unknown number of" if measure is None else f"{measure:.0f}"
