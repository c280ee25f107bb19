"""The profile `pipeline`: the jobs on Spark, in their image."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from compose.stack import BUILD_TIMEOUT_S, START_TIMEOUT_S, Stack, until

TOPIC = "archived"
RECORDS = 300
JOBS = ("archive", "lag")
OUTPUT = "/var/lib/tidelog/archive"
# Java and Spark start in a container, on a machine that runs a cluster as well.
JOB_TIMEOUT_S = 300.0
# The job commits once a minute.
ARCHIVED_TIMEOUT_S = 600.0


@pytest.fixture(scope="module")
def jobs(stack: Stack) -> Iterator[Stack]:
    stack.compose("--profile", "pipeline", "build", *JOBS, timeout_s=BUILD_TIMEOUT_S)
    stack.post("/v1/topics", {"topic": TOPIC, "partitions": 3, "replication_factor": 3})
    lines = "".join(f"key-{n}:value-{n}\n" for n in range(RECORDS))
    stack.tidelog("produce", TOPIC, "--key-separator", ":", stdin=lines)
    stack.compose("up", "--detach", *JOBS, timeout_s=START_TIMEOUT_S)
    yield stack
    stack.compose("stop", *JOBS)


def test_the_archive_has_every_record_of_the_log(jobs: Stack) -> None:
    def all_are_archived() -> bool:
        output = jobs.compose(
            *("run", "--rm", "-T", "pipeline", "archive", "reconcile", "--output", OUTPUT),
            timeout_s=JOB_TIMEOUT_S,
        )
        counted = re.findall(rf"^{TOPIC}/\d+\b.*: (\d+) records in the log", output, re.MULTILINE)
        if sum(map(int, counted)) != RECORDS:
            raise LookupError(output)
        return True

    until(all_are_archived, f"{RECORDS} records are archived", ARCHIVED_TIMEOUT_S)
    assert jobs.health("archive") == "running"


def test_lag_is_sampled_to_a_topic(jobs: Stack) -> None:
    until(lambda: jobs.tidelog("consume", "tidelog-lag"), "lag is sampled", ARCHIVED_TIMEOUT_S)
    assert jobs.health("lag") == "running"


def test_a_job_that_is_stopped_ends_by_itself(jobs: Stack) -> None:
    jobs.compose("stop", *JOBS)
    ended = {job: jobs.inspect(job)["State"]["ExitCode"] for job in JOBS}
    assert ended == dict.fromkeys(JOBS, 0)
