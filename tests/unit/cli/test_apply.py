"""`tidelog apply`: what it asks the controller, in which order, and what it needs consent for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tidelog.cli.exit_status import ExitStatus
from tidelog.errors import ErrorCode
from tidelog.v1 import admin_pb2 as pb
from unit.cli.conftest import Commands

DONE = pb.Operation(operation_id="grow", state=pb.OPERATION_STATE_DONE)
RUNNING = pb.Operation(operation_id="grow", state=pb.OPERATION_STATE_RUNNING)
MIN_ISR = pb.ConfigEntry(key="min_insync_replicas")


def details(
    name: str = "sea",
    partitions: int = 2,
    factor: int = 2,
    entries: tuple[pb.ConfigEntry, ...] = (MIN_ISR,),
) -> pb.TopicDetails:
    replicas = list(range(1, factor + 1))
    return pb.TopicDetails(
        topic=name,
        topic_id=f"id-{name}",
        partition_count=partitions,
        replication_factor=factor,
        config=entries,
        revision=44,
        partitions=[
            pb.PartitionDetails(partition=number, replicas=replicas, isr=replicas)
            for number in range(partitions)
        ],
    )


class Applied:
    """Applies a text to a cluster with these topics."""

    def __init__(self, commands: Commands, path: Path) -> None:
        self.commands = commands
        self.controller = commands.controller
        self.path = path

    def exists(self, *topics: pb.TopicDetails) -> None:
        self.controller.answer("DescribeTopics", pb.DescribeTopicsResponse(topics=topics))

    def apply(self, text: str, *options: str, input_: str | None = None) -> Result:
        self.path.write_text(text)
        return self.commands.run(
            "apply", "-f", str(self.path), *options, input_=input_, interactive=input_ is not None
        )

    def document(self, text: str, *options: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.apply(text, *options, "--json").stdout)
        return found


@pytest.fixture
def applied(commands: Commands, tmp_path: Path) -> Applied:
    commands.controller.answer("ListOperations", pb.ListOperationsResponse())
    return Applied(commands, tmp_path / "topics.yaml")


SEA = "topics: {sea: {partitions: 2, replication_factor: 2}}"


def test_a_cluster_as_declared_is_not_changed(applied: Applied) -> None:
    applied.exists(details())
    for options in (["--dry-run"], [], ["--yes"]):
        result = applied.apply(SEA, *options)
        assert (result.exit_code, result.stdout) == (
            ExitStatus.DONE,
            "Every topic is as declared.\n",
        )
    assert set(applied.controller.called()) == {"DescribeTopics", "ListOperations"}


def test_drift_is_exit_status_3_of_a_dry_run(applied: Applied) -> None:
    applied.exists(details())
    applied.controller.answer("AddPartitions", pb.AddPartitionsResponse(added=4))
    result = applied.apply("topics: {sea: {partitions: 6}}", "--dry-run")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[1].split() == ["sea", "change", "partitions", "2", "6"]
    assert "Records with a key go to other partitions" in result.stdout
    assert "To carry out this plan and no other: --expected-plan " in result.stderr
    assert [r.dry_run for r in applied.controller.requests["AddPartitions"]] == [True]


def test_a_topic_is_created_without_consent(applied: Applied) -> None:
    applied.exists()
    applied.controller.answer("CreateTopic", pb.CreateTopicResponse(topic_id="id"))
    text = "topics: {bay: {partitions: 3, replication_factor: 2, config: {segment_ms: 5000}}}"
    assert applied.apply(text).exit_code == ExitStatus.DONE
    planned, made = applied.controller.requests["CreateTopic"]
    assert (planned.dry_run, made.dry_run) == (True, False)
    assert (made.partitions, made.replication_factor, dict(made.config)) == (
        3,
        2,
        {"segment_ms": "5000"},
    )


def test_an_unprotected_topic_is_created_with_a_warning_but_without_consent(
    applied: Applied,
) -> None:
    applied.exists()
    applied.controller.answer("CreateTopic", pb.CreateTopicResponse(topic_id="id"))
    text = "topics: {bay: {replication_factor: 1}}"
    result = applied.apply(text)
    assert result.exit_code == ExitStatus.DONE
    assert "Warning: Topic bay is unprotected" in result.stdout
    document = applied.document(text, "--dry-run")
    assert (document["risks"], len(document["warnings"])) == ([], 1)


def test_settings_are_shown_with_units(applied: Applied) -> None:
    entry = pb.ConfigEntry(key="retention_ms", value="604800000", default_value="604800000")
    applied.exists(details(entries=(MIN_ISR, entry)))
    shorter = pb.ConfigChange(key="retention_ms", before="604800000", after="3600000")
    applied.controller.answer("AlterTopicConfig", pb.AlterTopicConfigResponse(changes=[shorter]))
    shown = applied.apply("topics: {sea: {config: {retention_ms: 1h}}}", "--dry-run")
    assert shown.stdout.splitlines()[1].split() == [
        *("sea", "change", "retention_ms"),
        *("7", "d", "1", "h"),
    ]


def test_a_change_that_would_be_rejected_changes_nothing(applied: Applied) -> None:
    applied.exists(details())
    applied.controller.answer("CreateTopic", pb.CreateTopicResponse())
    applied.controller.reject(
        "AlterTopicConfig", ErrorCode.INVALID_CONFIG, "'retentionms' does not exist"
    )
    result = applied.apply("topics: {bay: {}, sea: {config: {retentionms: 1}}}", "--yes")
    assert result.exit_code == ExitStatus.FAILED
    assert "topic sea: 'retentionms' does not exist" in result.stderr
    assert all(request.dry_run for request in applied.controller.requests["CreateTopic"])


@pytest.mark.parametrize(
    ("text", "rpc", "response"),
    [
        (
            "topics: {sea: {partitions: 3}}",
            "AddPartitions",
            pb.AddPartitionsResponse(added=1),
        ),
        (
            "topics: {sea: {partitions: 1}}",
            "RemovePartitions",
            pb.RemovePartitionsResponse(removed=1, brokers=[1]),
        ),
        (
            "topics: {sea: {replication_factor: 1}}",
            "SetReplicationFactor",
            pb.SetReplicationFactorResponse(),
        ),
        (
            "topics: {sea: {config: {retention_ms: 5}}}",
            "AlterTopicConfig",
            pb.AlterTopicConfigResponse(
                changes=[pb.ConfigChange(key="retention_ms", before="9", after="5")]
            ),
        ),
    ],
)
def test_a_change_that_costs_something_needs_consent(
    applied: Applied, text: str, rpc: str, response: object
) -> None:
    applied.exists(details())
    applied.controller.answer(rpc, response)
    rejected = applied.apply(text)
    assert rejected.exit_code == ExitStatus.USAGE
    assert "1 topic would be changed; give --yes" in rejected.stderr
    assert applied.apply(text, input_="no\n").exit_code == ExitStatus.FAILED
    assert all(request.dry_run for request in applied.controller.requests[rpc])


def test_deletion_is_confirmed_by_the_digest(applied: Applied) -> None:
    applied.exists(details(), details("bay"))
    applied.controller.answer("DeleteTopic", pb.DeleteTopicResponse(partitions=2))
    digest = str(applied.document(SEA, "--prune", "--dry-run")["digest"])
    assert applied.apply(SEA, "--prune", input_="y\n").exit_code == ExitStatus.FAILED
    assert all(request.dry_run for request in applied.controller.requests["DeleteTopic"])
    result = applied.apply(SEA, "--prune", input_=f"{digest}\n")
    assert result.exit_code == ExitStatus.DONE
    assert "bay: The topic (2 partitions) and all its records will be deleted" in result.stderr
    made = applied.controller.requests["DeleteTopic"][-1]
    assert (made.topic, made.topic_id, made.expected_revision) == ("bay", "id-bay", 44)


def test_a_plan_with_another_digest_is_rejected(applied: Applied) -> None:
    applied.exists(details(), details("bay"))
    applied.controller.answer("DeleteTopic", pb.DeleteTopicResponse(partitions=2))
    result = applied.apply(SEA, "--prune", "--yes", "--expected-plan", "0" * 32)
    assert result.exit_code == ExitStatus.FAILED
    assert "files or topics have changed since" in result.stderr
    digest = str(applied.document(SEA, "--prune", "--dry-run")["digest"])
    done = applied.apply(SEA, "--prune", "--yes", "--expected-plan", digest)
    assert done.exit_code == ExitStatus.DONE


def test_prune_without_any_topic_is_rejected(applied: Applied) -> None:
    applied.exists(details())
    result = applied.apply("topics: {}", "--prune", "--yes")
    assert result.exit_code == ExitStatus.USAGE
    assert "--prune would delete all 1" in result.stderr


def test_a_min_isr_above_the_factor_comes_after_the_operation(applied: Applied) -> None:
    applied.exists(details(factor=1))
    controller = applied.controller
    controller.answer("AlterTopicConfig", pb.AlterTopicConfigResponse(revision=45))
    controller.answer("SetReplicationFactor", pb.SetReplicationFactorResponse(operation=RUNNING))
    controller.answer("DescribeOperation", pb.DescribeOperationResponse(operation=DONE))
    controller.answer("AddPartitions", pb.AddPartitionsResponse(added=1))
    text = (
        "topics: {sea: {partitions: 3, replication_factor: 2, config: {min_insync_replicas: 2, "
        "segment_ms: 5000}}}"
    )
    document = applied.document(text, "--yes")
    assert document["operations"] == ["grow"]
    changes = [dict(r.set) for r in controller.requests["AlterTopicConfig"] if not r.dry_run]
    assert changes == [{"segment_ms": "5000"}, {"min_insync_replicas": "2"}]
    # The change of the configuration has changed the revision.
    assert controller.requests["AddPartitions"][-1].expected_revision == 45


def test_what_follows_a_failed_operation_is_not_begun(applied: Applied) -> None:
    applied.exists(details(factor=1), details("bay"))
    failed = pb.Operation(operation_id="grow", state=pb.OPERATION_STATE_CANCELLED)
    controller = applied.controller
    controller.answer("SetReplicationFactor", pb.SetReplicationFactorResponse(operation=RUNNING))
    controller.answer("DescribeOperation", pb.DescribeOperationResponse(operation=failed))
    controller.answer("DeleteTopic", pb.DeleteTopicResponse(partitions=2))
    result = applied.apply(SEA, "--prune", "--yes")
    assert result.exit_code == ExitStatus.FAILED
    assert "operation grow has ended as cancelled" in result.stderr
    assert all(request.dry_run for request in controller.requests["DeleteTopic"])


def test_a_running_operation_is_followed_before_anything_is_compared(applied: Applied) -> None:
    """As after an interruption: the topic has its factor, and its replicas are being copied."""
    controller = applied.controller
    applied.exists(details())
    controller.answers["ListOperations"].clear()
    controller.answer(
        "ListOperations",
        pb.ListOperationsResponse(operations=[RUNNING]),
        pb.ListOperationsResponse(operations=[RUNNING]),
        pb.ListOperationsResponse(),
    )
    move = pb.MoveProgress(move=pb.Move(topic="sea", partition=0, target=[1, 2]))
    controller.answer(
        "DescribeOperation", pb.DescribeOperationResponse(operation=DONE, moves=[move])
    )
    drift = applied.apply(SEA, "--dry-run")
    assert drift.exit_code == ExitStatus.DRIFT
    assert "Operation grow" in drift.stdout
    assert "its end comes first" in drift.stdout
    assert applied.apply(SEA).exit_code == ExitStatus.DONE
    assert "SetReplicationFactor" not in controller.called()


def test_a_file_that_does_not_exist_is_wrong_usage(commands: Commands) -> None:
    result = commands.run("apply", "-f", "/nonexistent/topics.yaml")
    assert result.exit_code == ExitStatus.USAGE
