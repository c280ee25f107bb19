"""The fixtures of `tidelog.testing`, as a project uses them: in a pytest run of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from documented import TESTING, blocks, read

TESTS = """
import asyncio

import pytest

from tidelog.client import Admin, Producer, SyncConsumer, SyncProducer, UnknownTopicError

three_brokers = pytest.mark.tidelog(brokers=3, partitions=2, config={"retention_ms": "-1"})
seen = []


def read(cluster, topic, count):
    with SyncConsumer(cluster.bootstrap) as consumer:
        consumer.assign_topic(topic)
        records = []
        while len(records) < count:
            records += consumer.poll()
    return sorted(record.value for record in records)


@three_brokers
def test_records_survive_a_killed_broker(tidelog_cluster, tidelog_topic):
    seen.append((tidelog_cluster.directory, tidelog_topic))
    with SyncProducer(tidelog_cluster.bootstrap) as producer:
        producer.send(tidelog_topic, b"ebb", partition=0)
        tidelog_cluster.kill(1)
        producer.send(tidelog_topic, b"flow", partition=0)
    assert read(tidelog_cluster, tidelog_topic, 2) == [b"ebb", b"flow"]


@three_brokers
async def test_the_next_test_has_all_brokers_and_a_topic_of_its_own(
    tidelog_cluster, tidelog_topic
):
    ((directory, topic),) = seen
    assert tidelog_cluster.directory == directory
    assert tidelog_topic != topic
    async with Admin(tidelog_cluster.bootstrap) as admin:
        brokers = (await admin.describe_cluster()).brokers
        described = await admin.describe_topic(tidelog_topic)
    assert [broker.broker_id for broker in brokers] == [1, 2, 3]
    assert (described.partition_count, described.replication_factor) == (2, 3)
    assert described.config == {"retention_ms": "-1"}


@three_brokers
async def test_a_paused_broker_answers_after_it_is_resumed(tidelog_cluster, tidelog_topic):
    async with Producer(tidelog_cluster.bootstrap) as producer:
        tidelog_cluster.pause(2)
        tidelog_cluster.resume(2)
        tidelog_cluster.restart(3)
        assert await (await producer.send(tidelog_topic, b"calm"))


@three_brokers
def test_an_unknown_broker_is_rejected(tidelog_cluster):
    with pytest.raises(ValueError, match="no broker 4"):
        tidelog_cluster.kill(4)


@three_brokers
def test_a_killed_leader_is_named(tidelog_cluster, tidelog_topic):
    leader = tidelog_cluster.leader_of(tidelog_topic, 1)
    assert tidelog_cluster.kill_leader(tidelog_topic, 1) == leader
    with SyncProducer(tidelog_cluster.bootstrap) as producer:
        producer.send_and_wait(tidelog_topic, b"calm", partition=1)
    assert tidelog_cluster.leader_of(tidelog_topic, 1) != leader
    with pytest.raises(UnknownTopicError, match="not 2"):
        tidelog_cluster.leader_of(tidelog_topic, 2)


@pytest.mark.tidelog(brokers=10)
def test_too_many_brokers(tidelog_cluster):
    pass
"""

# Two processes of pytest-xdist, which start a cluster each.
PARALLEL_TESTS = """
import pathlib
import pytest
from tidelog.client import SyncAdmin


@pytest.mark.parametrize("number", range(4))
def test_topics_are_those_of_the_process(tidelog_cluster, tidelog_topic, worker_id, number):
    pathlib.Path(worker_id).touch()
    with SyncAdmin(tidelog_cluster.bootstrap) as admin:
        assert [topic.name for topic in admin.list_topics()] == [tidelog_topic]
    ports = [address.rpartition(":")[2] for address in tidelog_cluster.bootstrap.split(",")]
    assert {int(port) % 2 for port in ports} == {int(worker_id.removeprefix("gw"))}
"""


def run(directory: Path, files: dict[str, str], *arguments: str) -> str:
    """Runs pytest on a project of these files; returns what it prints."""
    for name, content in {"pytest.ini": "[pytest]\nasyncio_mode = auto\n", **files}.items():
        (directory / name).write_text(content)
    # The plugin by its module, because the installed package may be older.
    plugin = ("-p", "no:tidelog", "-p", "tidelog.testing.plugin")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "--strict-markers", "-q", "-rA", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr


def test_a_project_tests_with_the_fixtures(tmp_path: Path) -> None:
    shown = run(tmp_path, {"test_project.py": TESTS})
    assert "5 passed" in shown, shown
    assert "1 error" in shown
    assert "10 brokers; a cluster has 1 to 9" in shown


def test_processes_of_xdist_have_clusters_and_ports_of_their_own(tmp_path: Path) -> None:
    files = {"test_parallel.py": PARALLEL_TESTS}
    shown = run(tmp_path, files, "-n", "2", "--dist", "load")
    assert "4 passed" in shown, shown
    assert (tmp_path / "gw0").exists()
    assert (tmp_path / "gw1").exists()


def test_the_documented_example_passes(tmp_path: Path) -> None:
    program, tests = blocks("python", read(TESTING))
    shown = run(tmp_path, {"storms.py": program, "test_storms.py": tests})
    assert "3 passed" in shown, shown
