"""Runs a job: its logs, its exit status, and the cause of a failure of Spark as one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidelog.errors import TidelogError
from tidelog_pipeline.job_command import JobError
from tidelog_pipeline.pipeline_config import PipelineConfig
from tidelog_runtime.telemetry.logging import configure_logging

# The last line of a Python traceback within a Java one.
_RAISED = re.compile(
    r"^(?!org\.|java\.|scala\.|py4j\.)(?:\w+\.)*[A-Z]\w*(?:Error|Exception): (.+)$", re.MULTILINE
)
# The first line of a Java exception, or of the cause of one.
_JAVA_NAME = r"((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Error|Exception)(?:: .+)?)$"
_JAVA_RAISED = re.compile(r"^(?:Caused by: |: )?" + _JAVA_NAME, re.MULTILINE)
# The first line of a Java exception that Spark reports as the cause of a failed query.
_JAVA_CAUSE = re.compile(r"^(?:Caused by: |: )" + _JAVA_NAME, re.MULTILINE)
_NO_CAUSE = "Spark failed without a reported cause"

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
        problem = failure_cause(str(error))
    except Py4JError as error:
        # For example, a StackOverflowError or a JVM that has ended.
        problem = java_failure_cause(str(error))
    except TidelogError as error:
        problem = error.message
    except (JobError, OSError) as error:
        problem = str(error)
    structlog.get_logger().error(
        "job_failed", problem=with_flag_names(problem, config.option_to_flag)
    )
    return EXIT_FAULT


def failure_cause(text: str) -> str:
    """Returns the message of the innermost error that Python code raised.

    If there is none: the innermost cause that Java names, such as a full disk, or else the
    first line.
    """
    found = _RAISED.findall(text)
    if found:
        return str(found[-1])
    causes = _JAVA_CAUSE.findall(text)
    if causes:
        return f"Spark failed with {causes[-1]}"
    return next(iter(text.strip().splitlines()), _NO_CAUSE)


def java_failure_cause(text: str) -> str:
    """Returns the innermost cause of an exception, preferring that of Python code.

    - `text`: py4j's report of a Java exception for which PySpark has no class.
    """
    of_java = _JAVA_RAISED.findall(text)
    if of_java and not _RAISED.search(text):
        return f"Spark failed with {of_java[-1]}"
    return failure_cause(text)


def with_flag_names(problem: str, flags: Mapping[str, str]) -> str:
    """Replaces names of the data source's options by the flags of a job.

    - `flags`: the text of the data source, and the text for the caller of the job.
    """
    for of_option, of_flag in flags.items():
        problem = problem.replace(of_option, of_flag)
    return problem
