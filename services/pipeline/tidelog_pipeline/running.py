"""Runs a job: its logs and its exit status."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidelog.errors import TidelogError
from tidelog_pipeline.config import PipelineConfig
from tidelog_pipeline.errors import JobError
from tidelog_pipeline.spark_errors import by_flags, cause_of, cause_of_java
from tidelog_runtime.telemetry.logging import configure_logging

# `EXIT_FOUND`: the job has completed, and what it checked is not as it should be.
EXIT_DONE, EXIT_FOUND, EXIT_FAULT = range(3)


def run(config: PipelineConfig, act: Callable[[], int]) -> int:
    """Returns the exit status of `act`, or `EXIT_FAULT` after an error.

    The error is logged as `job_failed` with its cause as `problem`.
    """
    configure_logging(config.service, log_level=config.log_level, log_format=config.log_format)
    try:
        return act()
    except PySparkException as error:
        problem = cause_of(str(error))
    except Py4JError as error:
        # For example, a StackOverflowError or a JVM that has ended.
        problem = cause_of_java(str(error))
    except TidelogError as error:
        problem = error.message
    except (JobError, OSError) as error:
        problem = str(error)
    structlog.get_logger().error("job_failed", problem=by_flags(problem, config.in_terms_of_flags))
    return EXIT_FAULT
