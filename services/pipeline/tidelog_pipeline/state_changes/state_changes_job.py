"""`python -m tidelog_pipeline state-changes`: tables of the history of partitions, and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog
from pyspark.sql import DataFrame, SparkSession

from tidelog_pipeline.job_command import PROGRAM, JobError
from tidelog_pipeline.job_runner import EXIT_DONE, run
from tidelog_pipeline.session import spark_session
from tidelog_pipeline.state_changes.core.incident_page import page
from tidelog_pipeline.state_changes.incident_reader import collect_incident
from tidelog_pipeline.state_changes.state_changes_config import StateChangesConfig
from tidelog_pipeline.state_changes.tables import Tables, read_logs, read_topic, tables_of
from tidelog_runtime.config import load


def main(argv: Sequence[str]) -> int:
    config = load(StateChangesConfig, argv, f"{PROGRAM} state-changes")
    return run(config, lambda: _act(config))


def _act(config: StateChangesConfig) -> int:
    missing = [path for path in config.logs if "://" not in path and not _is_there(path)]
    if missing:
        raise JobError(f"there is no file or directory {missing[0]}")
    with spark_session(config.service, config.spark_master, config.spark_conf) as spark:
        tables = tables_of(_read(spark, config))
        try:
            _write(tables, config)
        finally:
            tables.release()
    return EXIT_DONE


def _is_there(path: str) -> bool:
    """Returns whether the path exists or is a pattern, which only Spark can resolve."""
    return any(sign in path for sign in "*?[{") or Path(path).exists()


def _read(spark: SparkSession, config: StateChangesConfig) -> DataFrame:
    return read_logs(spark, config.logs) if config.logs else read_topic(spark, config.bootstrap)


def _write(tables: Tables, config: StateChangesConfig) -> None:
    log = structlog.get_logger()
    for name, frame in tables.frames.items():
        frame.write.mode("overwrite").parquet(f"{config.output.rstrip('/')}/{name}")
    log.info(
        "tables_written",
        output=config.output,
        tables=sorted(tables.frames),
        **{f"lines_{name}": count for name, count in tables.lines._asdict().items()},
    )
    if config.report is not None:
        incident = collect_incident(tables, *config.window)
        Path(config.report).parent.mkdir(parents=True, exist_ok=True)
        Path(config.report).write_text(page(incident))
        log.info("report_written", report=config.report)
