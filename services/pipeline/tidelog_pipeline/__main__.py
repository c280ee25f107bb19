"""`python -m tidelog_pipeline JOB ...`: one command for each job."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from tidelog.missing_extras import exit_not_installed, is_installed
from tidelog_pipeline.job_command import PROGRAM, parse_choice

# Each job is a package whose module `<name>_job` has a `main(argv)` that returns the exit status.
JOBS = {
    "archive": "topics as Parquet by date and hour, each record once",
    "check": "check of client histories that are too large for one machine",
    "lag": "lag of followers and of Spark's queries: samples, and tables of them",
    "state-changes": "state changes of partitions as tables, and a page about an incident",
}


def main(argv: Sequence[str]) -> int:
    package = parse_choice(PROGRAM, "job", JOBS, argv).replace("-", "_")
    if not is_installed("pyspark", "jinja2"):
        exit_not_installed(PROGRAM, "tidelog-services[jobs]")
    # Imported on demand: importing Spark takes a second.
    job = importlib.import_module(f"tidelog_pipeline.{package}.{package}_job")
    return int(job.main(argv[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
