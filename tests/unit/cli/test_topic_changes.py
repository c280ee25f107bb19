"""Commands that change topics, and what they show before the change."""

from __future__ import annotations

import json

import pytest

from tidelog.admin_messages import ConfigChange
from tidelog.change_warnings import of_config
from tidelog.cli.exit_status import ExitStatus
from tidelog.errors import ErrorCode
from tidelog.v1 import admin_pb2 as pb
from unit.cli.conftest import Commands


def altered(key: str, before: str, after: str, revision: int = 44) -> pb.AlterTopicConfigResponse:
    change = pb.ConfigChange(key=key, before=before, after=after)
    return pb.AlterTopicConfigResponse(changes=[change], revision=revision)


SHORTER = altered("retention_ms", "1000", "500")
LONGER = altered("retention_ms", "1000", "2000")
REMOVAL = pb.RemovePartitionsResponse(removed=2, revision=44, brokers=[1, 2])


def test_a_placement_is_shown_as_an_assignment_option(commands: Commands) -> None:
    placed = [pb.ReplicaAssignment(replicas=[1, 0]), pb.ReplicaAssignment(replicas=[0, 1])]
    commands.controller.answer("CreateTopic", pb.CreateTopicResponse(assignment=placed))
    result = commands.run("topics", "create", "bay", "-p", "2", "--dry-run")
    assert [line.split() for line in result.stdout.splitlines()[2:]] == [["0", "1,0"], ["1", "0,1"]]
    assert "tidelog topics create bay --assignment 1,0:0,1" in result.stderr
    assert "bay" not in commands.cluster.topics


def test_a_placement_from_a_dry_run_can_be_created_exactly(commands: Commands) -> None:
    placed = [pb.ReplicaAssignment(replicas=[1, 0]), pb.ReplicaAssignment(replicas=[0, 1])]
    commands.controller.answer("CreateTopic", pb.CreateTopicResponse(assignment=placed))
    arguments = ["create", "new", "-p", "2", "-c", "retention_ms=9", "-c", "recovery=manual"]
    result = commands.run("topics", *arguments, "--dry-run").stderr
    assert (
        "tidelog topics create new --assignment 1,0:0,1 -c retention_ms=9 -c recovery=manual"
        in " ".join(result.split())
    )


def test_a_topic_is_created_with_an_assignment_under_an_id(commands: Commands) -> None:
    commands.controller.answer("CreateTopic", pb.CreateTopicResponse(topic_id="id"))
    result = commands.run(
        *("topics", "create", "bay", "--assignment", "1,0:0,1", "--operation-id", "mine", "--json")
    )
    (requested,) = commands.controller.requests["CreateTopic"]
    assert [list(a.replicas) for a in requested.assignment] == [[1, 0], [0, 1]]
    assert (requested.partitions, requested.replication_factor, requested.operation_id) == (
        2,
        2,
        "mine",
    )
    document = json.loads(result.stdout)
    assert (document["operation_id"], document["topic_id"]) == ("mine", "id")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--assignment", "1;0"], "as 1,2:2,3:3,1"),
        (["--assignment", ""], "as 1,2:2,3:3,1"),
    ],
)
def test_an_impossible_assignment_is_wrong_usage(
    commands: Commands, options: list[str], problem: str
) -> None:
    result = commands.run("topics", "create", "bay", *options)
    assert result.exit_code == ExitStatus.USAGE
    assert problem in result.stderr


def test_a_deletion_is_planned(commands: Commands) -> None:
    plan = pb.DeleteTopicResponse(partitions=2, brokers=[0, 1])
    commands.controller.answer("DeleteTopic", plan)
    result = commands.run("topics", "delete", "sea", "--dry-run")
    assert "Topic sea (2 partitions, on brokers 0,1) and all its records would be" in result.stdout
    document = json.loads(commands.run("topics", "delete", "sea", "--dry-run", "--json").stdout)
    assert (document["dry_run"], document["brokers"]) == (True, [0, 1])
    assert "sea" in commands.cluster.topics


def test_topics_are_filtered_by_name_and_by_health(commands: Commands) -> None:
    commands.cluster.create("bay", [0])
    commands.cluster.elect("sea", 1, -1)
    unwell = json.loads(commands.run("topics", "list", "--unwell", "--json").stdout)
    named = json.loads(commands.run("topics", "list", "--contains", "ba", "--json").stdout)
    assert [t["topic"] for t in unwell] == ["sea"]
    assert [t["topic"] for t in named] == ["bay"]
    assert "no such topics" in commands.run("topics", "list", "--contains", "zz").stderr


def test_configuration_is_shown_with_effective_values(commands: Commands) -> None:
    entries = [
        pb.ConfigEntry(key="min_insync_replicas", description="Replicas in sync."),
        pb.ConfigEntry(key="segment_ms", value="5", is_set=True, default_value="7"),
    ]
    topic = pb.TopicDetails(topic="sea", topic_id="id", config=entries, revision=44)
    commands.controller.answer("DescribeTopics", pb.DescribeTopicsResponse(topics=[topic]))
    rows = commands.run("topics", "config", "sea").stdout.splitlines()[-2:]
    assert rows[0].split()[:4] == ["min_insync_replicas", "-", "default", "-"]
    assert rows[1].split() == ["segment_ms", "5", "ms", "set", "7", "ms"]
    document = json.loads(commands.run("topics", "config", "sea", "--set-only", "--json").stdout)
    assert (document["revision"], len(document["config"])) == (44, 1)


def test_a_harmless_change_needs_no_confirmation(commands: Commands) -> None:
    commands.controller.answer("AlterTopicConfig", LONGER)
    result = commands.run("topics", "alter-config", "sea", "-s", "retention_ms=2000", "-u", "x")
    assert result.exit_code == ExitStatus.DONE
    assert result.stdout.splitlines()[-1].split() == ["retention_ms", "1", "s", "2", "s"]
    planned, made = commands.controller.requests["AlterTopicConfig"]
    assert (planned.dry_run, made.dry_run, made.expected_revision) == (True, False, 44)
    assert (dict(made.set), list(made.unset)) == ({"retention_ms": "2000"}, ["x"])


def test_a_change_that_may_lose_records_needs_confirmation(commands: Commands) -> None:
    commands.controller.answer("AlterTopicConfig", SHORTER)
    arguments = ["topics", "alter-config", "sea", "--set", "retention_ms=500"]
    rejected = commands.run(*arguments)
    assert rejected.exit_code == ExitStatus.USAGE
    assert "deleted for good, shortly; give --yes" in rejected.stderr
    rejected = commands.run(*arguments, input_="n\n", interactive=True)
    assert rejected.exit_code == ExitStatus.FAILED
    assert "retention_ms: 1 s -> 500 ms" in rejected.stderr
    assert all(r.dry_run for r in commands.controller.requests["AlterTopicConfig"])
    assert commands.run(*arguments, "--yes").exit_code == ExitStatus.DONE


@pytest.mark.parametrize("setting", ["retention_ms=2s", "retention_ms=2000"])
def test_a_setting_may_have_a_unit(commands: Commands, setting: str) -> None:
    commands.controller.answer("AlterTopicConfig", LONGER)
    assert commands.run("topics", "alter-config", "sea", "-s", setting).exit_code == ExitStatus.DONE
    assert dict(commands.controller.requests["AlterTopicConfig"][0].set) == {"retention_ms": "2000"}


@pytest.mark.parametrize("command", [("create", "new", "-c"), ("alter-config", "sea", "-s")])
def test_a_setting_in_another_unit_is_rejected_as_by_the_cluster(
    commands: Commands, command: tuple[str, ...]
) -> None:
    result = commands.run("topics", *command, "retention_ms=7 weeks")
    assert result.exit_code == ExitStatus.FAILED
    assert "give one as 500ms, 10s" in " ".join(result.stderr.split())


def test_setting_the_present_value_is_not_a_change(commands: Commands) -> None:
    commands.controller.answer("AlterTopicConfig", pb.AlterTopicConfigResponse(revision=44))
    result = commands.run("topics", "alter-config", "sea", "--set", "segment_ms=5")
    assert result.stdout == "Topic sea has this configuration already.\n"
    assert len(commands.controller.requests["AlterTopicConfig"]) == 1


def test_an_unknown_key_is_rejected_with_the_message_of_the_controller(commands: Commands) -> None:
    commands.controller.reject("AlterTopicConfig", ErrorCode.INVALID_CONFIG, "did you mean x?")
    result = commands.run("topics", "alter-config", "sea", "--set", "y=5")
    assert (result.exit_code, result.stderr) == (ExitStatus.FAILED, "error: did you mean x?\n")


@pytest.mark.parametrize("options", [[], ["--set", "retention_ms"]])
def test_an_empty_change_is_wrong_usage(commands: Commands, options: list[str]) -> None:
    assert commands.run("topics", "alter-config", "sea", *options).exit_code == ExitStatus.USAGE
    assert commands.controller.called() == []


@pytest.mark.parametrize(
    ("key", "before", "after", "is_danger"),
    [
        ("retention_ms", "1000", "500", True),
        ("retention_ms", "500", "1000", False),
        ("retention_bytes", "-1", "1000", True),
        ("retention_bytes", "1000", "-1", False),
        ("min_insync_replicas", "3", "2", True),
        ("min_insync_replicas", "", "1", True),
        ("min_insync_replicas", "2", "", False),
        ("min_insync_replicas", "3", "", True),
        ("min_insync_replicas", "1", "2", False),
        ("unclean_leader_election", "false", "true", True),
        ("unclean_leader_election", "true", "false", False),
        ("durability", "synced", "replicated", True),
        ("recovery", "manual", "balanced", True),
        ("segment_ms", "7", "5", False),
    ],
)
def test_changes_that_may_lose_records_are_known(
    key: str, before: str, after: str, is_danger: bool
) -> None:
    assert bool(list(of_config([ConfigChange(key, before, after)]))) is is_danger


def test_partitions_are_added_after_confirmation(commands: Commands) -> None:
    placed = [pb.ReplicaAssignment(replicas=[1, 0])]
    commands.controller.answer(
        "AddPartitions",
        pb.AddPartitionsResponse(added=1, revision=44, assignment=placed),
        pb.AddPartitionsResponse(added=1, revision=45, pending_brokers=[1]),
    )
    result = commands.run(
        *("topics", "add-partitions", "sea", "-p", "3"), input_="y\n", interactive=True
    )
    assert result.stdout == "Added 1 partition to topic sea: 3 in all.\n"
    assert "Records with a key go to other partitions" in result.stderr
    assert "Brokers 1 have not acknowledged it yet" in result.stderr
    planned, made = commands.controller.requests["AddPartitions"]
    assert (planned.dry_run, made.partitions, made.expected_revision) == (True, 3, 44)


@pytest.mark.parametrize(("added", "sent"), [(1_000, 1_000), (1_001, 0)])
def test_planned_placements_are_requested_up_to_the_limit_of_a_request(
    commands: Commands, added: int, sent: int
) -> None:
    placed = [pb.ReplicaAssignment(replicas=[1, 0])] * added
    commands.controller.answer(
        "AddPartitions", pb.AddPartitionsResponse(added=added, revision=44, assignment=placed)
    )
    commands.run("topics", "add-partitions", "sea", "-p", str(added + 2), "--yes")
    _, made = commands.controller.requests["AddPartitions"]
    assert list(made.assignment) == placed[:sent]


def test_an_addition_is_planned_with_its_placement(commands: Commands) -> None:
    placed = [pb.ReplicaAssignment(replicas=[1, 0])]
    commands.controller.answer(
        "AddPartitions", pb.AddPartitionsResponse(added=1, revision=44, assignment=placed)
    )
    result = commands.run("topics", "add-partitions", "sea", "-p", "3", "--dry-run")
    assert result.stdout.splitlines()[-1].split() == ["2", "1,0"]
    document = json.loads(
        commands.run("topics", "add-partitions", "sea", "-p", "3", "--dry-run", "--json").stdout
    )
    assert (document["added"], document["assignment"]) == (1, [[1, 0]])


def test_an_unchanged_partition_count_needs_no_confirmation(commands: Commands) -> None:
    commands.controller.answer("AddPartitions", pb.AddPartitionsResponse(revision=44))
    result = commands.run("topics", "add-partitions", "sea", "-p", "2", interactive=True)
    assert result.stdout == "Topic sea has 2 partitions already.\n"


@pytest.mark.parametrize(
    ("verb", "method", "nothing"),
    [
        ("add-partitions", "AddPartitions", pb.AddPartitionsResponse(revision=44)),
        ("remove-partitions", "RemovePartitions", pb.RemovePartitionsResponse(revision=44)),
    ],
)
def test_a_repeated_request_waits_for_the_first(
    commands: Commands, verb: str, method: str, nothing: object
) -> None:
    commands.controller.answer(method, nothing)
    commands.run("topics", verb, "sea", "-p", "2", interactive=True)
    planned, waited = commands.controller.requests[method]
    assert (planned.dry_run, waited.dry_run, waited.expected_revision) == (True, False, 44)
    commands.run("topics", verb, "sea", "-p", "2", "--dry-run")
    assert commands.controller.requests[method][-1].dry_run


def test_a_repeated_creation_returns_the_original_factor(
    commands: Commands,
) -> None:
    commands.controller.answer("CreateTopic", pb.CreateTopicResponse(topic_id="id"))
    there = pb.TopicDetails(topic="bay", replication_factor=1, partition_count=2)
    commands.controller.answer("DescribeTopics", pb.DescribeTopicsResponse(topics=[there]))
    commands.run("topics", "create", "bay", "--operation-id", "mine")
    commands.run("topics", "create", "bay")
    again, other = commands.controller.requests["CreateTopic"]
    assert (again.replication_factor, other.replication_factor) == (1, 2)


def test_partitions_are_removed_after_the_topic_name_was_typed(commands: Commands) -> None:
    commands.controller.answer("RemovePartitions", REMOVAL)
    arguments = ["topics", "remove-partitions", "sea", "-p", "4"]
    rejected = commands.run(*arguments, input_="y\n", interactive=True)
    assert rejected.exit_code == ExitStatus.FAILED
    assert "2 partitions (4 to 5, on brokers 1,2) and all their records" in rejected.stderr
    done = commands.run(*arguments, input_="sea\n", interactive=True)
    assert done.stdout == "Removed 2 partitions of topic sea: 4 are left.\n"
    made = commands.controller.requests["RemovePartitions"][-1]
    assert (made.confirm_topic, made.expected_revision, made.dry_run) == ("sea", 44, False)


def test_a_removal_is_planned(commands: Commands) -> None:
    commands.controller.answer("RemovePartitions", REMOVAL)
    arguments = ["topics", "remove-partitions", "sea", "-p", "4", "--dry-run"]
    assert "would be deleted for good" in commands.run(*arguments).stdout
    document = json.loads(commands.run(*arguments, "--json").stdout)
    assert (document["removed"], document["brokers"], document["trace_id"]) == (2, [1, 2], None)
    assert all(r.dry_run for r in commands.controller.requests["RemovePartitions"])
