"""`python -m tidelog_pipeline archive`"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.client.clock import Clock, SystemClock
from tidelog.spark import register, watch
from tidelog.spark.batch_reader import plan_ranges
from tidelog.spark.cluster_lookups import new_lookups
from tidelog.spark.filters import Narrowed
from tidelog.spark.option_values import OptionError
from tidelog.spark.options import BOOTSTRAP, ReadOptions
from tidelog_pipeline.archive.archive_config import (
    ACTIONS,
    ArchiveConfig,
    ArchivingConfig,
    BackfillConfig,
    CompactConfig,
    ExpireConfig,
    ReconcileConfig,
    RepairConfig,
    RunConfig,
)
from tidelog_pipeline.archive.archive_log import CHECKPOINT, ArchiveLog
from tidelog_pipeline.archive.archive_writer import ArchiveWriter
from tidelog_pipeline.archive.cluster_logs import (
    LogsNow,
    check_same_topics,
    logs_now,
    logs_now_of,
    matching_logs,
    sample_values,
)
from tidelog_pipeline.archive.compactor import compact
from tidelog_pipeline.archive.core.commit_json import DamagedCommitError, UncommittedFilesError
from tidelog_pipeline.archive.core.hours import hours_before, hours_to_compact, whole_hours_ms
from tidelog_pipeline.archive.core.planned_offsets import Planned
from tidelog_pipeline.archive.core.ranges import by_partition, range_options, time_ms
from tidelog_pipeline.archive.core.reconciliation import damaged_text
from tidelog_pipeline.archive.core.spans import LogId, Span, slices
from tidelog_pipeline.archive.core.value_format import ValueFormat, check_samples, effective_format
from tidelog_pipeline.archive.damaged_records import left_out
from tidelog_pipeline.archive.file_checks import absent_or_cut
from tidelog_pipeline.archive.format_files import configured_format, store_format, stored_format
from tidelog_pipeline.archive.hour_expiry import expire
from tidelog_pipeline.archive.log_reader import loss_options, read_ranges_of_logs
from tidelog_pipeline.archive.reconciler import reconcile
from tidelog_pipeline.archive.record_locations import find_missing_rows, topic_of
from tidelog_pipeline.archive.repairer import Repairer, restored_summary
from tidelog_pipeline.archive.restorer import Restorer
from tidelog_pipeline.job_command import load_action, print_line
from tidelog_pipeline.job_runner import EXIT_DONE, EXIT_FOUND, run
from tidelog_pipeline.session import spark_session

# Hours are in UTC, and other readers than Spark can read the times, too.
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Otherwise rows of files that cannot be read would silently be missing in counts.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
REPAIR = "run `archive repair`"
RETRIED = "remove the cause; the next compaction tries again"
# Interval of compactions while a run continues.
COMPACT_EVERY_MS = 600_000
# Interval of the checks for a signal to stop.
POLL_INTERVAL_S = 1


def main(argv: Sequence[str]) -> int:
    """Returns the exit status. `EXIT_FOUND`: the archive and the log differ."""
    config = load_action("archive", ACTIONS, argv)
    return run(config, lambda: _act(config))


def _act(config: ArchiveConfig) -> int:
    if not isinstance(config, ArchivingConfig):
        config.layout.check_exists()
    with spark_session(config.service, config.spark_master, config.spark_conf) as spark:
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        register(spark)
        layout = config.layout
        if isinstance(config, ReconcileConfig):
            archive = ArchiveLog(layout.table, layout.current_state)
            return _reconcile(spark, archive, config)
        with layout.held_by_writer() as own:
            return _Writer(ArchiveLog(layout.table, lambda: own), spark, SystemClock()).act(config)


class _Writer:
    """An action that changes the archive.

    `_is_sound`: no lost or damaged file was found.
    """

    def __init__(self, log: ArchiveLog, spark: SparkSession, clock: Clock) -> None:
        self._spark = spark
        self._clock = clock
        self._log = log
        self._compacted_ms = clock.monotonic_ms()
        self._is_sound = True

    def act(self, config: ArchiveConfig) -> int:
        lost = self._recovered(config)
        for path in lost:
            self._report(f"{path} of the last commit is missing")
        if isinstance(config, RunConfig):
            self._run(config)
        elif isinstance(config, BackfillConfig):
            self._backfill(config)
        elif isinstance(config, CompactConfig):
            self._compact(config)
        elif isinstance(config, RepairConfig):
            self._repair(config)
        elif isinstance(config, ExpireConfig):
            self._expire(config)
        # Restored files of a back-fill or a repair are no longer in the state.
        is_sound = self._is_sound and not set(lost) & set(self._log.state.paths)
        return EXIT_DONE if is_sound else EXIT_FOUND

    def _recovered(self, config: ArchiveConfig) -> list[str]:
        """Returns the lost files of the last commit. A repair continues without damaged commits."""
        try:
            return self._log.recover()
        except UncommittedFilesError:
            if not isinstance(config, RepairConfig):
                raise
            return self._log.finish_last()
        except DamagedCommitError:
            if not isinstance(config, RepairConfig):
                raise
        for problem in self._log.load_readable(store=not config.dry_run):
            self._is_sound = False
            print_line(f"DAMAGED: {problem}")
        return [] if config.dry_run else self._log.finish_last()

    def _report_fault(self, problem: str) -> None:
        """Reports a fault of the archive that does not prevent this action."""
        self._is_sound = False
        self._report(problem)

    def _report(self, problem: str) -> None:
        structlog.get_logger().error("archive_damaged", problem=problem, hint=REPAIR)
        print_line(f"DAMAGED: {problem}; {REPAIR}")

    def _report_denied(self, problem: str) -> None:
        """Reports that the file system denies an answer, which does not end this action."""
        self._is_sound = False
        structlog.get_logger().error("hour_not_compacted", problem=problem, hint=RETRIED)
        print_line(f"{problem}; {RETRIED}")

    def _run(self, config: RunConfig) -> None:
        servers = config.bootstrap_servers
        if config.pattern is None:
            now = logs_now(servers, config.topics, must_exist=self._must_exist(config))
        else:
            now = matching_logs(servers, config.pattern)
        writer = self._writer(config, now)
        before = dict(self._log.state.rows)
        began = {log: span.first for log, span in now.items()}

        def archive(frame: DataFrame, batch: int) -> None:
            writer.write_batch(frame, batch, began)
            if config.compaction and config.every_seconds is not None:
                self._compact_periodically(config)

        if config.metrics_listen is not None:
            host, _, port = config.metrics_listen.rpartition(":")
            watch(self._spark, int(port), host)
        query = self._started(config, archive, began)
        ended_of_itself = _await_end(query)
        # After a signal, there is no time for compaction.
        if config.compaction and ended_of_itself:
            self._compact(config)
        self._print_progress(
            before, logs_now(servers, {log.topic for log in now}, must_exist=False)
        )

    def _must_exist(self, config: RunConfig) -> bool:
        """Whether every topic must exist. A query that continues reports deleted topics itself."""
        return config.on_data_loss == "fail" or not self._log.state_directory.names(CHECKPOINT)

    def _started(
        self,
        config: RunConfig,
        archive: Callable[[DataFrame, int], None],
        began: Mapping[LogId, int],
    ) -> StreamingQuery:
        chosen = {"subscribe": ",".join(config.topics)}
        if config.pattern is not None:
            chosen = {"subscribePattern": config.pattern}
        frame = (
            self._spark.readStream.format("tidelog")
            .options(
                **chosen,
                **{BOOTSTRAP: config.bootstrap_servers},
                startingOffsets=by_partition(began) if began else "earliest",
                **loss_options(config.on_data_loss),
                includeHeaders="true",
                maxOffsetsPerTrigger=str(config.max_offsets),
            )
            .load()
        )
        writing = (
            frame.writeStream.queryName(f"archive-{self._log.directory.root.name}")
            .foreachBatch(archive)
            .option("checkpointLocation", str(self._log.state_directory.at(CHECKPOINT)))
        )
        if config.every_seconds is None:
            return writing.trigger(availableNow=True).start()
        return writing.trigger(processingTime=f"{config.every_seconds} seconds").start()

    def _backfill(self, config: BackfillConfig) -> None:
        chosen = range_options(config.topics, config.since, config.until)
        requested = ReadOptions.of_batch({**chosen, BOOTSTRAP: config.bootstrap_servers})
        with new_lookups(config.bootstrap_servers) as lookups:
            ranges = lookups.ask(lambda one: plan_ranges(requested, Narrowed(), one))
        found = {
            LogId(r.partition.topic, r.topic_id, r.partition.partition): Span(
                r.start.offset, r.end.offset
            )
            for r in ranges
            if r.size > 0
        }
        writer = self._writer(config, found)
        if not found:
            print_line("There is nothing in this range.")
            return
        before = dict(self._log.state.rows)
        # After a restart, offsets that are committed are read again but not written.
        for part in slices(found, config.max_offsets):
            frame = read_ranges_of_logs(
                self._spark,
                config.bootstrap_servers,
                part,
                includeHeaders="true",
                **loss_options(config.on_data_loss),
            )
            if config.on_data_loss == "fail":
                writer.write(frame, {log: Planned(*part[log]) for log in part})
            else:
                ends = {log: Planned(None, span.end) for log, span in part.items()}
                writer.write(frame, ends, firsts={log: s.first for log, s in part.items()})
        self._restore_within(config, writer, found)
        self._print_progress(before, _logs_to_report(config.bootstrap_servers, requested, found))

    def _restore_within(
        self, config: BackfillConfig, writer: ArchiveWriter, requested: LogsNow
    ) -> None:
        """Restores archived rows of this range whose files are lost."""
        log = self._log
        topics = {one.topic for one in requested}
        files = [file for file in log.state.all_files if topic_of(file.path) in topics]
        wrong = absent_or_cut(log.directory.root, files)
        if not wrong:
            return
        missing = find_missing_rows(self._spark, log.directory.root, log.state, wrong, topics)
        restorer = self._restorer(writer, config.bootstrap_servers, config.max_offsets)
        restored = restorer.restore(missing, within=requested)
        for one in restored:
            if one.rows:
                print_line(f"{one.log}: {restored_summary(one)}")
        if all(one.lost is None for one in restored):
            writer.remove(tuple(wrong))
        else:
            self._report_fault(
                f"{min(wrong)}: {wrong[min(wrong)]}; it had rows that are not in this range"
            )

    def _repair(self, config: RepairConfig) -> None:
        log = self._log
        form = stored_format(log)
        if form is not None and not config.dry_run:
            store_format(log.state_directory, form)
        check = partial(check_same_topics, config.bootstrap_servers)
        writer = ArchiveWriter(log, form or ValueFormat(), self._clock, check)
        restorer = self._restorer(writer, config.bootstrap_servers, config.max_offsets)
        repairer = Repairer(self._spark, log, writer, restorer, print_line)
        if config.dry_run:
            self._is_sound &= repairer.plan()
        else:
            self._is_sound = repairer.repair()

    def _restorer(self, writer: ArchiveWriter, bootstrap: str, max_offsets: int) -> Restorer:
        return Restorer(self._spark, writer, bootstrap, max_offsets, self._log.state)

    def _expire(self, config: ExpireConfig) -> None:
        before_ms = whole_hours_ms(time_ms("--before", config.before))
        if before_ms > self._clock.wall_ms():
            raise OptionError(f"option --before is {config.before!r}; it must be in the past")
        hours = hours_before(self._log.state, before_ms)
        verb, removed = "would be removed", hours
        if not config.dry_run:
            found = expire(self._spark, self._log, hours, before_ms, self._clock)
            verb, removed = "are removed", found.hours
            for path, why in sorted(found.damaged.items()):
                self._report_fault(f"{path}: {why}; its hour and later ones are not expired")
        for hour in removed:
            print_line(f"{hour.path}: {len(hour.files)} files with {hour.rows} rows {verb}")
        if not hours:
            print_line("No hour ended before that time.")

    def _writer(self, config: ArchivingConfig, now: LogsNow) -> ArchiveWriter:
        """Returns the writer.

        Raises `OptionError` if no value of a topic matches the schema of a new archive. An
        existing archive continues with any values.
        """
        kept = stored_format(self._log)
        form = effective_format(configured_format(config), kept)
        if kept is None:
            for topic in sorted({log.topic for log in now}):
                of_topic = {log: span for log, span in now.items() if log.topic == topic}
                check_samples(form, sample_values(config.bootstrap_servers, of_topic))
        store_format(self._log.state_directory, form)
        find = None
        if config.on_data_loss == "continue":
            find = partial(left_out, config.bootstrap_servers)
        check = partial(check_same_topics, config.bootstrap_servers)
        return ArchiveWriter(
            self._log, form, self._clock, check, strict=config.strict, find_left_out=find
        )

    def _compact_periodically(self, config: CompactConfig) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._compacted_ms >= COMPACT_EVERY_MS:
            self._compacted_ms = now_ms
            self._compact(config)

    def _compact(self, config: CompactConfig) -> None:
        hours = hours_to_compact(
            self._log.state,
            self._clock.wall_ms(),
            config.closed_after_ms,
            config.target_bytes,
        )
        for hour in hours:
            count = hour.file_count(config.target_bytes)
            problem = compact(self._spark, self._log, hour, count, self._clock)
            if problem is None:
                print_line(f"{hour.path}: {len(hour.files)} files are {count} now")
            elif problem.is_fault:
                self._report_fault(f"{hour.path} is not compacted: {problem.why}")
            else:
                self._report_denied(f"{hour.path} is not compacted: {problem.why}")

    def _print_progress(self, before: Mapping[LogId, int], now: LogsNow) -> None:
        state = self._log.state
        for log, rows in sorted(state.rows.items()):
            if log in now:
                to = state.read_to(log)
                damaged = state.damaged.get(log)
                print_line(
                    f"{log}: {rows - before.get(log, 0)} records archived, {rows} in all, up to "
                    f"offset {to}; {max(now[log].end - to, 0)} offsets are waiting"
                    + (f"; {damaged_text(damaged)}" if damaged else "")
                )
        unread = sum(state.unread.values())
        if unread:
            print_line(f"{unread} values do not match the schema; they are in the column unread.")


def _reconcile(spark: SparkSession, archive: ArchiveLog, config: ReconcileConfig) -> int:
    found = reconcile(
        spark,
        archive,
        config.bootstrap_servers,
        deep=config.deep,
        fails_at_damage=config.on_data_loss == "fail",
    )
    for path, why in sorted(found.damaged.items()):
        print_line(f"DAMAGED: {path}: {why}; {REPAIR}")
    for report in found.logs:
        print_line(str(report))
    if not found.logs:
        print_line("The archive is empty.")
    return EXIT_DONE if found.is_sound else EXIT_FOUND


def _logs_to_report(bootstrap: str, requested: ReadOptions, found: LogsNow) -> LogsNow:
    """Returns what a back-fill reports. Partitions that it does not name may have no leader."""
    if requested.topics.assigned is not None:
        return logs_now_of(bootstrap, found)
    return logs_now(bootstrap, {log.topic for log in found}, must_exist=False)


def _await_end(query: StreamingQuery) -> bool:
    """Waits for the query; returns whether it ended by itself and not by a signal.

    An interrupted micro-batch is committed, or repeated by the next run. The signal handler must
    not call Spark: it may interrupt a wait for an answer of Spark, and would get that answer.
    """
    stop_requested = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop_requested.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        while not query.awaitTermination(POLL_INTERVAL_S):
            if stop_requested.is_set():
                query.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return not stop_requested.is_set()
