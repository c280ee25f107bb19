"""How long brokers of `tidelog.testing` take to start and to stop, and whether tests in parallel
disturb each other.

Runs the same tests, each with a topic of its own, in one, two, four and eight processes of
pytest-xdist. Exit status 1: a bound is exceeded, a test failed, two processes shared a port, or a
process is left."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.report import Measured, at_most, finish, plain_document, write_json
from tidelog.testing import MemoryBroker

NAME = "bench-testing"
WORKERS = (1, 2, 4, 8)
TESTS = 100
# Of the cluster that starts and stops alone: clusters that start at the same time share processors.
MAX_START_S = 2.0
MAX_STOP_S = 0.5
MEMORY_STARTS = 20
RUN_TIMEOUT_S = 600.0

# The directory of the run has two files for each process: a line for each test, and the duration of
# the cluster's stop.
CONFTEST = """
import os, pathlib, time
import pytest

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
HERE = pathlib.Path(__file__).parent


def timed(stop):
    def stop_and_note():
        began = time.perf_counter()
        stop()
        (HERE / f"{WORKER}.stop").write_text(str(time.perf_counter() - began))

    return stop_and_note


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    began = time.perf_counter()
    result = yield
    if fixturedef.argname == "tidelog_cluster":
        request.node.cluster_s = time.perf_counter() - began
        cluster = fixturedef.cached_result[0]
        if not hasattr(cluster, "is_timed"):
            cluster.is_timed, cluster.stop = True, timed(cluster.stop)
    return result
"""
TESTS_FILE = """
import json, pathlib, re
import pytest
from tidelog.client import SyncConsumer, SyncProducer
from conftest import WORKER

HERE = pathlib.Path(__file__).parent


@pytest.mark.parametrize("number", range({tests}))
def test_a_topic_has_the_records_of_its_test_alone(
    tidelog_cluster, tidelog_topic, number, request
):
    bootstrap = tidelog_cluster.bootstrap
    value = f"{{WORKER}} {{number}}".encode()
    with SyncProducer(bootstrap) as producer, SyncConsumer(bootstrap) as consumer:
        producer.send_and_wait(tidelog_topic, value)
        consumer.assign_topic(tidelog_topic)
        found = [record.value for record in consumer.poll(10_000)]
        ends = consumer.end_offsets([(tidelog_topic, 0)])
    configs = (tidelog_cluster.directory / "config").glob("*.toml")
    ports = {{p for c in configs for p in re.findall(r"127\\.0\\.0\\.1:(\\d+)", c.read_text())}}
    with (HERE / f"{{WORKER}}.jsonl").open("a") as file:
        line = {{"cluster_s": request.node.cluster_s, "ports": sorted(ports)}}
        file.write(json.dumps(line) + "\\n")
    assert found == [value]
    assert list(ends.values()) == [1]
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of all tests.

    - `starts_s`, `stops_s`: of the cluster of each process.
    - `shared_ports`: ports of more than one cluster. `left`: processes after the run.
    """

    seconds: float
    failed: bool
    starts_s: Sequence[float]
    stops_s: Sequence[float]
    shared_ports: int
    left: int


def run(directory: Path, workers: int) -> Run:
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_kit.py").write_text(TESTS_FILE.format(tests=TESTS))
    plugin = ("-p", "no:tidelog", "-p", "tidelog.testing.plugin", "-p", "no:cacheprovider")
    began = time.perf_counter()
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *plugin, "-q", "-n", str(workers)),
            *("--rootdir", str(directory), "--basetemp", str(directory / "data"), str(directory)),
        ],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    seconds = time.perf_counter() - began
    if ended.returncode:
        sys.stderr.write(ended.stdout + ended.stderr)
    starts: list[float] = []
    ports: list[str] = []
    for file in directory.glob("gw*.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        starts.append(lines[0]["cluster_s"])
        ports += lines[0]["ports"]
    stops = [float(file.read_text()) for file in directory.glob("gw*.stop")]
    left = sum(1 for _ in processes_of(directory))
    return Run(seconds, ended.returncode != 0, starts, stops, len(ports) - len(set(ports)), left)


def processes_of(directory: Path) -> Iterator[int]:
    """Yields the ids of processes with the directory in their command."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(directory).encode() in path.read_bytes():
                yield int(path.parent.name)
        except OSError:
            continue


def memory_starts_ms() -> list[float]:
    """Returns the durations of starts; the first one also imports the broker's code."""
    found: list[float] = []
    for _ in range(MEMORY_STARTS):
        began = time.perf_counter()
        with MemoryBroker():
            found.append((time.perf_counter() - began) * 1_000)
    return found


def durations(done: Run, of: str, *, is_bounded: bool) -> list[Measured]:
    """Returns the slowest start and stop of a cluster."""
    found = (
        ("start", max(done.starts_s, default=0.0), MAX_START_S),
        ("stop", max(done.stops_s, default=0.0), MAX_STOP_S),
    )
    return [
        at_most(f"{what} of a cluster{of}", seconds, bound, "s")
        if is_bounded
        else Measured(f"{what} of a cluster, the slowest{of}", seconds, "s")
        for what, seconds, bound in found
    ]


def main() -> int:
    console = Console()
    first, *later = memory_starts_ms()
    results = [
        Measured("first start of a MemoryBroker", first, "ms"),
        Measured("start of a MemoryBroker", statistics.median(later), "ms"),
    ]
    for workers in WORKERS:
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
            done = run(Path(directory).resolve(), workers)
        of = f", {workers} process" + ("es" if workers > 1 else "")
        faults = done.failed + done.shared_ports + done.left
        faults += sum(abs(workers - len(found)) for found in (done.starts_s, done.stops_s))
        results += [
            *durations(done, of, is_bounded=workers == 1),
            Measured(f"{TESTS} tests" + of, done.seconds, "s"),
            at_most("failures, shared ports, processes left" + of, faults, 0, ""),
        ]
    path = write_json(Path("out") / f"{NAME}.json", plain_document(results))
    return finish(results, console, "Test kit", path)


if __name__ == "__main__":
    sys.exit(main())
