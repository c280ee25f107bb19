"""`tidelog recovery`: no record is given up without consent."""

from __future__ import annotations

import json

import pytest

from tidelog.cli.exit_status import ExitStatus
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from unit.cli.conftest import Commands

SURVIVOR = pb.ReplicaSurvivor(
    broker_id=1,
    described=True,
    last_epoch=4,
    log_end_offset=90,
    high_watermark=80,
    whole=True,
    lost_records=10,
)
BEST = pb.ReplicaSurvivor(
    broker_id=2, described=True, last_epoch=5, log_end_offset=100, lost_records=0
)
AWAY = pb.ReplicaSurvivor(broker_id=3, problem="it is not running", last_epoch=-1)
DETAILS = pb.RecoveryDetails(
    topic="sea",
    topic_id="id",
    partition=1,
    revision=33,
    last_known=[3],
    waits_for="broker 3",
    replicas=[SURVIVOR, BEST, AWAY],
)
CHOSEN = pb.RecoverPartitionsResponse(partitions=[pb.RecoverPartitionResult(partition=1)])


@pytest.fixture
def leaderless(commands: Commands) -> Commands:
    commands.controller.answer(
        "DescribeRecovery", pb.DescribeRecoveryResponse(partitions=[DETAILS])
    )
    commands.controller.answer("RecoverPartitions", CHOSEN)
    return commands


def test_survivors_are_shown_with_the_loss_of_each_choice(leaderless: Commands) -> None:
    shown = leaderless.run("recovery", "describe").stdout
    assert "sea/1 has no leader; it waits for broker 3." in shown
    assert "Last known to hold every committed record: 3" in shown
    first, second, third = (line.split() for line in shown.splitlines()[3:6])
    assert first == ["1", "0", "to", "90", "80", "4", "yes", "10", "records", "-"]
    assert second[-6:] == ["no", "nothing", "that", "others", "hold", "-"]
    assert third[5:] == ["not", "known", "it", "is", "not", "running"]


def test_survivors_are_described_as_json(leaderless: Commands) -> None:
    (document,) = json.loads(leaderless.run("recovery", "describe", "sea/1", "--json").stdout)
    assert (document["topic"], document["partition"], document["revision"]) == ("sea", 1, 33)
    lost = [survivor["lost_records"] for survivor in document["survivors"]]
    assert lost == [10, 0, None]
    (requested,) = leaderless.controller.requests["DescribeRecovery"]
    assert (requested.topic, list(requested.partitions)) == ("sea", [1])


def test_with_leaders_everywhere_there_is_nothing_to_recover(commands: Commands) -> None:
    commands.controller.answer("DescribeRecovery", pb.DescribeRecoveryResponse())
    result = commands.run("recovery", "describe")
    assert result.stdout == "Every selected partition has a leader.\n"


def test_a_choice_shows_its_loss_and_needs_the_topic_name(leaderless: Commands) -> None:
    rejected = leaderless.run("recovery", "choose", "sea/1=1", input_="yes\n", interactive=True)
    assert rejected.exit_code == ExitStatus.FAILED
    assert "Nothing was elected" in rejected.stderr
    assert "RecoverPartitions" not in leaderless.controller.called()
    done = leaderless.run("recovery", "choose", "sea/1=1", input_="sea\n", interactive=True)
    assert done.exit_code == ExitStatus.DONE
    assert "If broker 1 leads sea/1, 10 records that others hold would be truncated." in done.stderr
    assert "What only 3 holds is lost, too" in done.stderr
    assert done.stdout == "Broker 1 leads sea/1.\n"


def test_a_choice_applies_only_to_the_shown_state(leaderless: Commands) -> None:
    leaderless.run("recovery", "choose", "sea/1=2", "--yes")
    (requested,) = leaderless.controller.requests["RecoverPartitions"]
    choice = pb.RecoveryChoice(partition=1, broker_id=2, expected_revision=33)
    assert list(requested.choices) == [choice]


@pytest.mark.parametrize("leaders", [["sea/0=2"], ["sea/1=2", "sea/0=2"]])
def test_a_partition_that_was_not_shown_is_not_recovered(
    leaderless: Commands, leaders: list[str]
) -> None:
    if len(leaders) == 1:
        leaderless.controller.answer("DescribeRecovery", pb.DescribeRecoveryResponse())
    result = leaderless.run("recovery", "choose", *leaders, "--yes")
    assert result.exit_code == ExitStatus.FAILED
    assert "sea/0 is led by broker 0: there is nothing to recover" in result.stderr
    assert "RecoverPartitions" not in leaderless.controller.called()


def test_a_repeated_choice_that_was_carried_out_is_not_a_fault(
    commands: Commands,
) -> None:
    commands.controller.answer("DescribeRecovery", pb.DescribeRecoveryResponse())
    result = commands.run("recovery", "choose", "sea/0=0", interactive=True)
    assert (result.exit_code, result.stdout) == (ExitStatus.DONE, "Broker 0 leads sea/0.\n")
    assert "RecoverPartitions" not in commands.controller.called()


def test_a_dry_run_elects_no_leader(leaderless: Commands) -> None:
    result = leaderless.run("recovery", "choose", "sea/1=2", "--dry-run")
    assert "If broker 2 leads sea/1, nothing that others hold would be truncated." in result.stdout
    document = json.loads(
        leaderless.run("recovery", "choose", "sea/1=9", "--dry-run", "--json").stdout
    )
    assert (document["dry_run"], document["results"]) == (True, [])
    assert [d["partition"] for d in document["described"]] == [1]
    assert "RecoverPartitions" not in leaderless.controller.called()


def test_a_broker_without_a_replica_is_distinguished(leaderless: Commands) -> None:
    result = leaderless.run("recovery", "choose", "sea/1=9", "--dry-run")
    assert "Broker 9 holds no replica of sea/1: the choice will be rejected." in result.stdout


def test_a_pending_election_names_what_it_waits_for(commands: Commands) -> None:
    commands.controller.answer(
        "DescribeRecovery", pb.DescribeRecoveryResponse(partitions=[DETAILS])
    )
    late = error_to_wire(TidelogError(ErrorCode.REQUEST_TIMED_OUT, "it waits for broker 1"))
    result = pb.RecoverPartitionResult(partition=1, error=late)
    commands.controller.answer(
        "RecoverPartitions", pb.RecoverPartitionsResponse(partitions=[result])
    )
    ran = commands.run("recovery", "choose", "sea/1=1", "--yes", "--json")
    assert ran.exit_code == ExitStatus.TIMED_OUT
    assert ran.stderr == "error: it waits for broker 1\n"
    assert json.loads(ran.stdout)["results"][0]["error"]["code"] == "REQUEST_TIMED_OUT"


def test_partitions_of_two_topics_are_wrong_usage(commands: Commands) -> None:
    result = commands.run("recovery", "choose", "sea/1=1", "bay/0=1", "--yes")
    assert result.exit_code == ExitStatus.USAGE
    assert "one topic at a time" in result.stderr


def test_recovery_by_the_best_log_is_tried_first(leaderless: Commands) -> None:
    waits = leaderless.run("topics", "recover", "sea", "--dry-run").stdout
    assert "The election would wait for brokers 3; if they are lost for good, give" in waits
    live = leaderless.run("topics", "recover", "sea", "--from-live-replicas", "--dry-run").stdout
    assert "the one with the longest log in the newest epoch" in live
    document = json.loads(leaderless.run("topics", "recover", "sea", "--dry-run", "--json").stdout)
    assert (document["dry_run"], document["results"]) == (True, [])
    assert [one["partition"] for one in document["described"]] == [1]
    assert "RecoverPartitions" not in leaderless.controller.called()
