"""The job `state-changes` on a real cluster whose leader is killed: from log files, and from the
topic."""

from __future__ import annotations

import datetime
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from integration.clusters import publishing_cluster
from spark.running import Running, running
from tidelog.client import SyncAdmin
from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog.state_changes.json_form import format_time
from tidelog.state_changes.log_lines import LogLines
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC, from_value
from tidelog.state_changes.tracing import traces_of
from tidelog_pipeline.__main__ import main

PATIENCE_S = 60.0


class Incident(NamedTuple):
    """The leader of `topic`/0 was killed at `killed_ms`, and came back. `logs` are copies, because
    the cluster continues to run."""

    topic: str
    leader: int
    killed_ms: int
    whole_ms: int
    logs: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("publishing"), publishing_cluster) as started:
        yield started


@pytest.fixture(scope="module")
def incident(cluster: Running, tmp_path_factory: pytest.TempPathFactory) -> Incident:
    topic = cluster.new_topic(partitions=1, min_insync_replicas="3")
    leader = cluster.leader_of(topic, 0)
    killed_ms = _now_ms()
    cluster.run(cluster.local.kill(leader))
    _until(lambda: cluster.leader_of(topic, 0) not in (leader, -1))
    time.sleep(1)
    cluster.restart(leader)
    _until(lambda: leader in _isr(cluster, topic) and _is_logged_whole(cluster, topic))
    whole_ms = _now_ms()
    logs = tmp_path_factory.mktemp("incident") / "logs"
    shutil.copytree(cluster.local.directory / "logs", logs)
    return Incident(topic, leader, killed_ms, whole_ms, logs)


def _now_ms() -> int:
    return round(time.time() * 1000)


def _isr(cluster: Running, topic: str) -> list[int]:
    with SyncAdmin(cluster.bootstrap) as admin:
        return list(admin.describe_topic(topic).partitions[0].isr)


def _is_logged_whole(cluster: Running, topic: str) -> bool:
    """The store has the state before the leader logs it."""
    return any(
        change.kind is Kind.ISR_EXPAND and change.stage is Stage.COMPLETED and change.topic == topic
        for change in _logged(cluster.local.directory / "logs")
    )


def _logged(logs: Path) -> list[StateChange]:
    lines = LogLines()
    for path in sorted(logs.iterdir()):
        lines.take(path.read_bytes().splitlines())
    return lines.events


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def of_partition(spark: SparkSession, output: Path, table: str, topic: str) -> list[Row]:
    frame: DataFrame = spark.read.parquet(str(output / table))
    return frame.where(f"topic = '{topic}' and partition = 0").collect()


@pytest.fixture(scope="module")
def output(
    spark: SparkSession, incident: Incident, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    assert spark
    directory = tmp_path_factory.mktemp("tables")
    begin, end = incident.killed_ms - 5_000, incident.whole_ms + 5_000
    window = ["--since", format_time(begin), "--until", format_time(end)]
    report = ["--report", str(directory / "incident.html")]
    arguments = ["--logs", str(incident.logs), "--output", str(directory), *report, *window]
    assert main(["state-changes", *arguments]) == 0
    return directory


@pytest.mark.rule("state-changes-show-leaderless-time")
def test_the_time_without_a_leader_is_that_of_the_failover(
    spark: SparkSession, incident: Incident, output: Path
) -> None:
    [available] = of_partition(spark, output, "availability", incident.topic)
    failover = _failover(spark, output, incident)
    assert available["times_without_leader"] >= 1
    assert 0 < available["longest_without_leader_ms"] <= incident.whole_ms - incident.killed_ms
    assert failover["is_whole"]
    steps = ("noticed_ms", "decided_ms", "told_ms", "taken_up_ms")
    assert sum(failover[step] for step in steps) == failover["total_ms"]
    began_ms = failover["began_at"].replace(tzinfo=datetime.UTC).timestamp() * 1000
    assert incident.killed_ms - 1 <= began_ms <= incident.whole_ms


def test_it_was_under_min_isr_until_the_broker_was_back(
    spark: SparkSession, incident: Incident, output: Path
) -> None:
    [available] = of_partition(spark, output, "availability", incident.topic)
    churn = of_partition(spark, output, "isr_churn", incident.topic)
    assert available["min_isr"] == 3
    assert 0 < available["under_min_isr_ms"] <= incident.whole_ms - incident.killed_ms
    [of_leader] = [row for row in churn if row["broker"] == incident.leader]
    assert of_leader["left"] == of_leader["joined"] >= 1


def test_changes_and_stages_are_those_that_trace_shows(
    spark: SparkSession, incident: Incident, output: Path
) -> None:
    name = (incident.topic, 0)
    lives = [life for life in traces_of(_logged(incident.logs)) if life.name == name]
    changes = of_partition(spark, output, "changes", incident.topic)
    stages = of_partition(spark, output, "stages", incident.topic)
    assert sorted(row["change_id"] for row in changes) == sorted(life.change_id for life in lives)
    assert len(stages) == sum(len(part.stages) for life in lives for part in life.parts)
    assert {row["change_id"]: row["took_ms"] for row in changes} == {
        life.change_id: life.took_ms for life in lives
    }


def test_durations_are_those_of_the_changes_by_kind_and_cause(
    spark: SparkSession, output: Path
) -> None:
    by_kind: dict[tuple[str, str | None], list[Row]] = {}
    for row in spark.read.parquet(str(output / "changes")).collect():
        by_kind.setdefault((row["kind"], row["cause"]), []).append(row)
    durations = spark.read.parquet(str(output / "durations")).collect()
    assert {(row["kind"], row["cause"]) for row in durations} == by_kind.keys()
    assert ("election", "broker_crashed") in by_kind
    for row in durations:
        changes = by_kind[row["kind"], row["cause"]]
        took = sorted(one["took_ms"] for one in changes if one["took_ms"] is not None)
        assert row["changes"] == len(changes)
        assert row["failed"] == sum(one["is_failed"] for one in changes)
        assert row["unfinished"] == sum(one["is_unfinished"] for one in changes)
        assert row["max_ms"] == (took[-1] if took else None)
        assert row["p50_ms"] == (pytest.approx(median(took)) if took else None)


def test_elections_are_counted_by_cause(spark: SparkSession, output: Path) -> None:
    elections = spark.read.parquet(str(output / "elections")).collect()
    counted = Counter((row["kind"], row["cause"]) for row in elections)
    partitions = {
        key: {(e["topic"], e["partition"]) for e in elections if (e["kind"], e["cause"]) == key}
        for key in counted
    }
    by_cause = spark.read.parquet(str(output / "elections_by_cause")).collect()
    assert {(row["kind"], row["cause"]): row["elections"] for row in by_cause} == counted
    assert {(row["kind"], row["cause"]): row["partitions"] for row in by_cause} == {
        key: len(found) for key, found in partitions.items()
    }
    assert counted["election", "broker_crashed"] >= 1


@pytest.mark.rule("incident-page-loads-nothing")
def test_the_page_describes_the_incident_and_loads_nothing(
    incident: Incident, output: Path
) -> None:
    page = (output / "incident.html").read_text()
    assert f"{incident.topic}/0" in page
    assert "Critical path of the slowest failover" in page
    assert page.count("<svg") == 3
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.rule("state-changes-show-leaderless-time")
def test_the_topic_and_the_logs_describe_the_same_failover(
    spark: SparkSession, cluster: Running, incident: Incident, output: Path, tmp_path: Path
) -> None:
    from_logs = _failover(spark, output, incident)
    _until(lambda: _is_published(cluster, from_logs["change_id"], incident.leader))
    arguments = ["--bootstrap", cluster.bootstrap, "--output", str(tmp_path / "tables")]
    assert main(["state-changes", *arguments]) == 0
    assert _failover(spark, tmp_path / "tables", incident) == from_logs


def _failover(spark: SparkSession, output: Path, incident: Incident) -> Row:
    """The failover after the kill; if the election was repeated, the first one."""
    found = of_partition(spark, output, "failovers", incident.topic)
    lost = [row for row in found if row["broker_lost"] == incident.leader]
    return min(lost, key=lambda row: row["began_at"])


def _is_published(cluster: Running, change_id: str, leader: int) -> bool:
    """Whether the topic has all events that the failover's steps are computed from."""
    with SyncAdmin(cluster.bootstrap) as admin:
        topics = [described.name for described in admin.list_topics(internal=True)]
    if STATE_CHANGES_TOPIC not in topics:
        return False
    changes = [from_value(record.value or b"") for record in cluster.records(STATE_CHANGES_TOPIC)]
    completed = {
        change.kind
        for change in changes
        if change.stage is Stage.COMPLETED
        and (
            change.change_id == change_id
            or (change.kind is Kind.BROKER_LEFT and change.broker == leader)
        )
    }
    return {Kind.ELECTION, Kind.BECOME_LEADER, Kind.BROKER_LEFT} <= completed


def test_log_files_without_state_changes_are_reported(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark
    (tmp_path / "a.log").write_text("started\n")
    arguments = ["--logs", str(tmp_path / "a.log"), "--output", str(tmp_path / "tables")]
    assert main(["state-changes", *arguments]) == 2
    assert "none of 1 lines is a state change" in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()
