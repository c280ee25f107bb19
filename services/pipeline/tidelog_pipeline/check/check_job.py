"""`python -m tidelog_pipeline check --history HISTORY`: `tidelog check-history` on Spark.

Writes the JSON document of `tidelog check-history --json` to stdout. The exit status is 1 if an
anomaly is found that no recorded loss mark excuses, and 2 if there is no history.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import structlog

from tidelog.history import HistoryError
from tidelog.history.report_document import document
from tidelog_pipeline.check.check_config import CheckConfig
from tidelog_pipeline.check.history_files import find_files
from tidelog_pipeline.check.plan import CheckResult, check
from tidelog_pipeline.job_command import PROGRAM, JobError
from tidelog_pipeline.job_runner import EXIT_DONE, EXIT_FOUND, run
from tidelog_pipeline.session import spark_session
from tidelog_runtime.config import load


def main(argv: Sequence[str]) -> int:
    """Returns the exit status. `EXIT_FOUND`: an anomaly."""
    config = load(CheckConfig, argv, f"{PROGRAM} check")
    return run(config, lambda: _act(config))


def _act(config: CheckConfig) -> int:
    try:
        # Checked first, because Spark takes seconds to start.
        find_files(config.history)
        with spark_session(config.service, config.spark_master, config.spark_conf) as spark:
            began = time.monotonic()
            checked = check(spark, config.history, config.range_bytes)
    except HistoryError as error:
        raise JobError(str(error)) from error
    _print_result(checked, time.monotonic() - began)
    return EXIT_FOUND if checked.report.anomaly_count else EXIT_DONE


def _print_result(checked: CheckResult, seconds: float) -> None:
    report = checked.report
    structlog.get_logger().info(
        "history_checked",
        valid=not report.anomaly_count,
        operations=report.operations,
        anomalies=report.anomaly_count,
        excused=report.excused_count,
        seconds=round(seconds, 1),
        worker_peak_mb=checked.worker_peak_kb >> 10,
    )
    json.dump(document(report, checked.timing), sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")
