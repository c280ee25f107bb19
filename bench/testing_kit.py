"""How long brokers of `tidelog.testing` take to start, and whether tests in parallel disturb each
other.

Runs the same tests, each with a topic of its own, in one, two and four processes of pytest-xdist.
Exit status 1: a test failed, two processes shared a port, or a process is left."""

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
WORKERS = (1, 2, 4)
TESTS = 24
MEMORY_STARTS = 20
RUN_TIMEOUT_S = 600.0

# The directory of the run has one file for each process, with a line for each test.
CONFTEST = """
import os, time
import pytest

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    began = time.perf_counter()
    result = yield
    if fixturedef.argname == "tidelog_cluster":
        request.node.cluster_s = time.perf_counter() - began
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

    - `starts_s`: of the cluster of each process.
    - `shared_ports`: ports of more than one cluster. `left`: processes after the run.
    """

    seconds: float
    failed: bool
    starts_s: Sequence[float]
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
    left = sum(1 for _ in processes_of(directory))
    return Run(seconds, ended.returncode != 0, starts, len(ports) - len(set(ports)), left)


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
        faults = done.failed + done.shared_ports + done.left + abs(workers - len(done.starts_s))
        results += [
            Measured("start of a cluster, the slowest" + of, max(done.starts_s, default=0), "s"),
            Measured(f"{TESTS} tests" + of, done.seconds, "s"),
            at_most("failures, shared ports, processes left" + of, faults, 0, ""),
        ]
    path = write_json(Path("out") / f"{NAME}.json", plain_document(results))
    return finish(results, console, "Test kit", path)


if __name__ == "__main__":
    sys.exit(main())
