"""Commands that start, follow and cancel operations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.operations import OperationKind, OperationState
from tidelog.errors import ErrorCode
from tidelog.rpc.message_codec import words_of
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1 import errors_pb2
from unit.cli.conftest import Commands

MOVE = pb.Move(topic="sea", topic_id="id", partition=4, original=[1, 2], target=[3, 2])
PLAN = pb.Plan(
    moves=[MOVE],
    move_count=1,
    replicas_added=1,
    leaders_changed=1,
    minimum_replicas_added=1,
    brokers=[pb.BrokerShare(broker_id=3, replicas_after=1, leaders_after=1)],
    digest="d1",
)
BEGUN_PLAN = pb.Plan(move_count=1, replicas_added=1, leaders_changed=1, minimum_replicas_added=1)


def operation(state: int = pb.OPERATION_STATE_RUNNING, done: int = 0) -> pb.Operation:
    return pb.Operation(
        operation_id="grow",
        kind=pb.OPERATION_KIND_REBALANCE,
        state=pb.OperationState.ValueType(state),
        request="{}",
        requested_by="ann",
        requested_from="ipv4:127.0.0.1:1",
        requested_at_ms=1_700_000_000_000,
        ended_at_ms=0 if state == pb.OPERATION_STATE_RUNNING else 1_700_000_060_000,
        progress=pb.OperationProgress(
            moves=2, moves_done=done, moves_active=1, replicas_to_add=2, replicas_added=done
        ),
        revision=55,
    )


DONE = operation(pb.OPERATION_STATE_DONE, 2)
CANCELLED = operation(pb.OPERATION_STATE_CANCELLED)


def test_a_dry_run_shows_the_exact_plan_and_starts_nothing(commands: Commands) -> None:
    commands.controller.answer("Rebalance", pb.RebalanceResponse(plan=PLAN))
    result = commands.run("rebalance", "--dry-run")
    assert result.exit_code == ExitStatus.DONE
    assert [line.split() for line in result.stdout.splitlines()[-2:]] == [
        ["partition", "replicas", "then", "copied", "to", "deleted", "from"],
        ["sea/4", "1,2", "3,2", "3", "1"],
    ]
    assert "1 replica is copied (the minimum for this balance: 1)" in result.stdout
    assert "nothing was changed" in result.stderr
    assert [request.dry_run for request in commands.controller.requests["Rebalance"]] == [True]


def test_a_plan_as_json_is_accepted_by_reassign(commands: Commands, tmp_path: Path) -> None:
    commands.controller.answer("Rebalance", pb.RebalanceResponse(plan=PLAN))
    commands.controller.answer("Reassign", pb.ReassignResponse(operation=DONE, plan=BEGUN_PLAN))
    printed = commands.run("rebalance", "--dry-run", "--json").stdout
    (tmp_path / "plan.json").write_text(printed)
    assert json.loads(printed)["operation"] is None
    commands.run("reassign", "--file", str(tmp_path / "plan.json"), "--yes")
    (requested,) = commands.controller.requests["Reassign"]
    assert list(requested.moves) == [MOVE]


def test_moves_are_read_from_stdin(commands: Commands) -> None:
    commands.controller.answer("Reassign", pb.ReassignResponse(operation=DONE))
    commands.run("reassign", "--file", "-", "--yes", input_="sea/4=3,2  # back\n\nbay/0=1\n")
    (requested,) = commands.controller.requests["Reassign"]
    assert [(m.topic, m.partition, list(m.target)) for m in requested.moves] == [
        ("sea", 4, [3, 2]),
        ("bay", 0, [1]),
    ]


def test_an_empty_plan_is_not_a_fault(commands: Commands) -> None:
    commands.controller.answer("Rebalance", pb.RebalanceResponse(plan=pb.Plan()))
    printed = commands.run("rebalance", "--dry-run", "--json").stdout
    result = commands.run("reassign", "--file", "-", "--yes", input_=printed)
    assert (result.exit_code, "nothing was started" in result.stdout) == (ExitStatus.DONE, True)
    ran = commands.run("reassign", "--file", "-", "--yes", "--json", input_=printed)
    assert json.loads(ran.stdout)["plan"]["move_count"] == 0
    assert commands.controller.requests["Reassign"] == []


@pytest.mark.parametrize(
    "arguments", [["sea/4"], ["sea=3"], ["sea/4=three"], ["sea/4="], [], ["sea/x=3"]]
)
def test_invalid_moves_are_wrong_usage(commands: Commands, arguments: list[str]) -> None:
    result = commands.run("reassign", *arguments, "--yes")
    assert result.exit_code == ExitStatus.USAGE
    assert "sea/0=4,2" in result.stderr
    assert commands.controller.called() == []


# Destructive commands by the RPC that they call before they ask for confirmation.
DANGEROUS = [
    ("Rebalance", ["rebalance"]),
    ("Reassign", ["reassign", "sea/4=3"]),
    ("AddBrokers", ["brokers", "add", "3"]),
    ("RemoveBrokers", ["brokers", "remove", "3"]),
    ("SetReplicationFactor", ["topics", "set-replication-factor", "sea", "-r", "3"]),
    ("ReverseOperation", ["operations", "reverse", "grow"]),
    ("DescribeOperation", ["operations", "cancel", "grow"]),
    ("DescribeTopics", ["topics", "delete", "sea"]),
    ("AddPartitions", ["topics", "add-partitions", "sea", "-p", "9"]),
    ("RemovePartitions", ["topics", "remove-partitions", "sea", "-p", "1"]),
    ("DescribeRecovery", ["recovery", "choose", "sea/0=1"]),
    ("DescribeTopics", ["topics", "recover", "sea"]),
]


@pytest.mark.parametrize(("query", "arguments"), DANGEROUS)
def test_without_a_terminal_a_destructive_command_needs_yes(
    commands: Commands, query: str, arguments: list[str]
) -> None:
    if query != "DescribeTopics":
        commands.controller.answer(query, getattr(pb, f"{query}Response")())
    result = commands.run(*arguments)
    assert result.exit_code == ExitStatus.USAGE
    assert "give --yes to do it without confirmation, or --dry-run" in result.stderr
    assert commands.controller.called() == [query]
    assert all(getattr(r, "dry_run", True) for r in commands.controller.requests[query])


@pytest.mark.parametrize(("query", "arguments"), DANGEROUS)
def test_a_missing_topic_or_broker_is_reported_before_confirmation(
    commands: Commands, query: str, arguments: list[str]
) -> None:
    if query == "DescribeTopics":
        commands.cluster.topics.clear()
    else:
        commands.controller.reject(query, ErrorCode.UNKNOWN_OPERATION, "there is none")
    result = commands.run(*arguments)
    assert result.exit_code == ExitStatus.NOT_FOUND
    assert "--yes" not in result.stderr


def test_the_plan_is_shown_before_confirmation(commands: Commands) -> None:
    commands.controller.answer(
        "AddBrokers",
        pb.AddBrokersResponse(plan=PLAN),
        pb.AddBrokersResponse(operation=operation(), plan=BEGUN_PLAN),
    )
    result = commands.run("brokers", "add", "3", input_="y\n", interactive=True)
    assert result.exit_code == ExitStatus.DONE
    assert "sea/4      1,2       3,2" in result.stderr
    assert "Operation grow (rebalance) is running." in result.stdout
    assert "tidelog operations watch grow" in result.stderr
    planned, started = commands.controller.requests["AddBrokers"]
    assert (planned.dry_run, started.dry_run) == (True, False)
    assert (list(started.broker_ids), started.operation_id[:3]) == ([3], "op-")


def test_a_declined_confirmation_starts_nothing(commands: Commands) -> None:
    commands.controller.answer("RemoveBrokers", pb.RemoveBrokersResponse(plan=PLAN))
    result = commands.run("brokers", "remove", "3", input_="\n", interactive=True)
    assert result.exit_code == ExitStatus.FAILED
    assert "Nothing was started" in result.stderr
    assert len(commands.controller.requests["RemoveBrokers"]) == 1


def test_an_empty_plan_needs_no_confirmation(commands: Commands) -> None:
    done = pb.Operation(operation_id="grow", state=pb.OPERATION_STATE_DONE)
    commands.controller.answer(
        "Rebalance", pb.RebalanceResponse(plan=pb.Plan()), pb.RebalanceResponse(operation=done)
    )
    result = commands.run("rebalance", interactive=True)
    assert result.exit_code == ExitStatus.DONE
    assert "Continue?" not in result.stderr


def test_a_long_plan_is_shortened_at_a_confirmation_and_complete_in_a_dry_run(
    commands: Commands,
) -> None:
    moves = [pb.Move(topic="sea", partition=n, original=[1], target=[2]) for n in range(30)]
    plan = pb.Plan(moves=moves, move_count=30)
    commands.controller.answer("Rebalance", pb.RebalanceResponse(plan=plan))
    declined = commands.run("rebalance", input_="n\n", interactive=True)
    assert declined.stderr.count("sea/") == 20
    assert "… and 10 more partitions; --dry-run shows all" in declined.stderr
    assert commands.run("rebalance", "--dry-run").stdout.count("sea/") == 30


def test_only_the_confirmed_plan_is_started(commands: Commands) -> None:
    conflict = pb.RebalanceResponse(
        error=errors_pb2.Error(
            code=errors_pb2.ERROR_CODE_REVISION_CONFLICT, message="the plan would be another one"
        )
    )
    commands.controller.answer("Rebalance", pb.RebalanceResponse(plan=PLAN), conflict)
    result = commands.run("rebalance", input_="y\n", interactive=True)
    assert (result.exit_code, "another one" in result.stderr) == (ExitStatus.FAILED, True)
    planned, started = commands.controller.requests["Rebalance"]
    assert (planned.expected_plan, started.expected_plan) == ("", PLAN.digest)


BEGINNING = {
    "Reassign": ("reassign", "sea/4=3,2"),
    "Rebalance": ("rebalance",),
    "AddBrokers": ("brokers", "add", "3"),
    "RemoveBrokers": ("brokers", "remove", "3"),
    "SetReplicationFactor": ("topics", "set-replication-factor", "sea", "-r", "3"),
    "ReverseOperation": ("operations", "reverse", "former"),
}


@pytest.mark.parametrize("call", BEGINNING)
def test_a_plan_from_a_dry_run_can_be_started_by_its_digest(commands: Commands, call: str) -> None:
    answer = getattr(pb, f"{call}Response")
    commands.controller.answer(call, answer(plan=PLAN), answer(operation=DONE))
    shown = commands.run(*BEGINNING[call], "--dry-run")
    assert f"--expected-plan {PLAN.digest}" in shown.stderr
    started = commands.run(*BEGINNING[call], "--expected-plan", PLAN.digest, "--yes")
    assert started.exit_code == ExitStatus.DONE
    requested = [(r.dry_run, r.expected_plan) for r in commands.controller.requests[call]]
    assert requested == [(True, ""), (False, PLAN.digest)]


def test_an_expected_plan_is_the_only_one_to_confirm(commands: Commands) -> None:
    commands.controller.reject("Rebalance", ErrorCode.REVISION_CONFLICT, "another one")
    result = commands.run("rebalance", "--expected-plan", "d1", interactive=True)
    assert (result.exit_code, "Continue?" in result.stderr) == (ExitStatus.FAILED, False)
    (planned,) = commands.controller.requests["Rebalance"]
    assert (planned.dry_run, planned.expected_plan) == (True, "d1")


def test_an_empty_digest_is_wrong_usage(commands: Commands) -> None:
    result = commands.run("rebalance", "--yes", "--expected-plan", "")
    assert result.exit_code == ExitStatus.USAGE
    assert "give the digest that --dry-run shows" in result.stderr
    assert commands.controller.called() == []


def test_a_request_carries_its_id_and_its_caller(commands: Commands) -> None:
    commands.controller.answer("Rebalance", pb.RebalanceResponse(operation=DONE))
    commands.run("rebalance", "--yes", "--operation-id", "grow", "--requested-by", "ann")
    (requested,) = commands.controller.requests["Rebalance"]
    assert requested.operation_id == "grow"
    assert commands.controller.requested_by == ["ann"]


def test_a_repeated_request_is_neither_planned_nor_confirmed_again(
    commands: Commands,
) -> None:
    commands.controller.answer("DescribeOperation", pb.DescribeOperationResponse(operation=DONE))
    commands.controller.answer("Rebalance", pb.RebalanceResponse(operation=DONE))
    result = commands.run("rebalance", "--operation-id", "grow", interactive=True)
    assert result.exit_code == ExitStatus.DONE
    assert [request.dry_run for request in commands.controller.requests["Rebalance"]] == [False]


def test_an_unencodable_caller_name_is_wrong_usage(commands: Commands) -> None:
    result = commands.run("rebalance", "--yes", "--requested-by", "Jürgen")
    assert result.exit_code == ExitStatus.USAGE
    assert "printable characters of ASCII" in result.stderr


def test_the_default_caller_name_is_the_login(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    commands.controller.answer("Rebalance", pb.RebalanceResponse(operation=DONE))
    commands.run("rebalance", "--yes")
    assert commands.controller.requested_by[0].startswith("ann@")


def test_a_missing_answer_is_followed_by_the_command_to_retry(commands: Commands) -> None:
    commands.controller.reject("Rebalance", ErrorCode.METADATA_STORE_UNAVAILABLE, "etcd is away")
    result = commands.run("rebalance", "--yes", "--operation-id", "grow", "--timeout", "0.2")
    assert result.exit_code == ExitStatus.TIMED_OUT
    assert "etcd is away" in result.stderr
    assert "The same again with --operation-id grow is safe" in result.stderr


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.UNKNOWN_BROKER, ExitStatus.NOT_FOUND),
        (ErrorCode.NOT_ENOUGH_BROKERS, ExitStatus.FAILED),
        (ErrorCode.PARTITION_BUSY, ExitStatus.FAILED),
    ],
)
def test_a_rejection_keeps_the_message_of_the_controller(
    commands: Commands, code: ErrorCode, status: ExitStatus
) -> None:
    commands.controller.reject("RemoveBrokers", code, "topic sea would keep 2 of 3 replicas")
    result = commands.run("brokers", "remove", "3", "--dry-run")
    assert result.exit_code == status
    assert result.stderr == "error: topic sea would keep 2 of 3 replicas\n"


def test_a_started_operation_can_be_followed_to_its_end(commands: Commands) -> None:
    commands.controller.answer(
        "Rebalance", pb.RebalanceResponse(operation=operation(), plan=BEGUN_PLAN)
    )
    commands.controller.answer("DescribeOperation", pb.DescribeOperationResponse(operation=DONE))
    result = commands.run("rebalance", "--yes", "--watch")
    assert result.exit_code == ExitStatus.DONE
    assert "done; 2 of 2 partitions done" in result.stdout.splitlines()[-1]


def test_a_followed_operation_is_printed_as_json_in_its_final_state(commands: Commands) -> None:
    commands.controller.answer(
        "Rebalance", pb.RebalanceResponse(operation=operation(), plan=BEGUN_PLAN)
    )
    failed = operation(pb.OPERATION_STATE_FAILED)
    commands.controller.answer("DescribeOperation", pb.DescribeOperationResponse(operation=failed))
    result = commands.run("rebalance", "--yes", "--watch", "--json")
    assert result.exit_code == ExitStatus.FAILED
    document = json.loads(result.stdout)
    assert document["operation"]["state"] == "failed"
    assert document["plan"]["replicas_added"] == 1
    assert document["dry_run"] is False


def test_a_replication_factor_request_names_all_topics(commands: Commands) -> None:
    commands.controller.answer(
        "SetReplicationFactor", pb.SetReplicationFactorResponse(operation=DONE)
    )
    commands.run("topics", "set-replication-factor", "sea", "bay", "-r", "3", "--yes")
    (requested,) = commands.controller.requests["SetReplicationFactor"]
    assert (list(requested.topics), requested.replication_factor) == (["sea", "bay"], 3)


def test_operations_are_listed_by_state_and_kind(commands: Commands) -> None:
    commands.controller.answer(
        "ListOperations", pb.ListOperationsResponse(operations=[operation(done=1)])
    )
    result = commands.run("operations", "list", "--state", "running", "--kind", "rebalance")
    (requested,) = commands.controller.requests["ListOperations"]
    assert list(requested.states) == [pb.OPERATION_STATE_RUNNING]
    assert list(requested.kinds) == [pb.OPERATION_KIND_REBALANCE]
    row = result.stdout.splitlines()[1].split()
    assert row[:7] == ["grow", "rebalance", "running", "1", "of", "2", "2023-11-14T22:13:20Z"]
    listed = json.loads(commands.run("operations", "list", "--json").stdout)
    assert [(o["operation_id"], o["progress"]["moves_done"]) for o in listed] == [("grow", 1)]


def test_every_state_and_kind_is_a_valid_filter() -> None:
    states, kinds = words_of(pb.OperationState.DESCRIPTOR), words_of(pb.OperationKind.DESCRIPTOR)
    assert [*OperationState] == [*states.values()][1:]
    assert [*OperationKind] == [*kinds.values()][1:]


def test_an_operation_is_described(commands: Commands) -> None:
    commands.controller.answer("DescribeOperation", pb.DescribeOperationResponse(operation=DONE))
    shown = commands.run("operations", "describe", "grow").stdout
    assert "Requested  2023-11-14T22:13:20.000Z by ann from ipv4:127.0.0.1:1" in shown
    assert "Ended      2023-11-14T22:14:20.000Z, after 1 min" in shown
    document = json.loads(commands.run("operations", "describe", "grow", "--json").stdout)
    assert (document["kind"], document["state"], document["revision"]) == ("rebalance", "done", 55)


def test_an_unknown_operation_is_not_found(commands: Commands) -> None:
    commands.controller.reject("DescribeOperation", ErrorCode.UNKNOWN_OPERATION)
    assert commands.run("operations", "describe", "no").exit_code == ExitStatus.NOT_FOUND


def test_moves_are_shown_with_the_brokers_they_wait_for(commands: Commands) -> None:
    active = pb.MoveProgress(move=MOVE, state=pb.MOVE_STATE_ACTIVE, waits_for=[3])
    waiting = pb.MoveProgress(move=MOVE, state=pb.MOVE_STATE_WAITING)
    commands.controller.answer(
        "DescribeOperation",
        pb.DescribeOperationResponse(operation=operation(), moves=[active, waiting]),
    )
    rows = commands.run("operations", "moves", "grow", "--state", "active").stdout.splitlines()
    assert [row.split() for row in rows[1:]] == [["sea/4", "1,2", "3,2", "active", "3", "-"]]
    listed = json.loads(commands.run("operations", "moves", "grow", "--json").stdout)
    assert [move["state"] for move in listed] == ["active", "waiting"]
    assert listed[0]["move"]["target"] == [3, 2]


def test_a_watch_prints_each_change_once_on_a_line(commands: Commands) -> None:
    answers = [operation(), operation(), operation(done=1), DONE]
    commands.controller.answer(
        "DescribeOperation", *(pb.DescribeOperationResponse(operation=o) for o in answers)
    )
    result = commands.run("operations", "watch", "grow", "--interval", "0.1")
    assert result.exit_code == ExitStatus.DONE
    states = [line.split(" ", 1)[1].split(" of ")[0] for line in result.stdout.splitlines()]
    assert states == ["running; 0", "running; 1", "done; 2"]


def test_a_watch_as_json_prints_one_document_a_line(commands: Commands) -> None:
    answers = [operation(), CANCELLED]
    commands.controller.answer(
        "DescribeOperation", *(pb.DescribeOperationResponse(operation=o) for o in answers)
    )
    result = commands.run("operations", "watch", "grow", "--interval", "0.1", "--json")
    assert result.exit_code == ExitStatus.FAILED
    states = [json.loads(line)["state"] for line in result.stdout.splitlines()]
    assert states == ["running", "cancelled"]


def test_a_watch_times_out(commands: Commands) -> None:
    commands.controller.answer(
        "DescribeOperation", pb.DescribeOperationResponse(operation=operation())
    )
    result = commands.run("operations", "watch", "grow", "--timeout", "0.2")
    assert result.exit_code == ExitStatus.TIMED_OUT
    assert "had not ended after 0.2 s (0 of 2 partitions done" in result.stderr


def test_a_cancellation_shows_what_is_reverted_and_asks_for_confirmation(
    commands: Commands,
) -> None:
    commands.controller.answer(
        "DescribeOperation", pb.DescribeOperationResponse(operation=operation())
    )
    back = pb.Plan(
        moves=[pb.Move(topic="sea", partition=4, original=[3, 2], target=[1, 2])],
        warnings=["besides the moves, topic sea gets replication factor 2 again"],
    )
    commands.controller.answer(
        "CancelOperation",
        pb.CancelOperationResponse(plan=back),
        pb.CancelOperationResponse(operation=CANCELLED),
    )
    result = commands.run("operations", "cancel", "grow", input_="y\n", interactive=True)
    assert result.exit_code == ExitStatus.DONE
    assert "1 active move would be rolled back, and 1 waiting move would" in result.stderr
    assert "sea/4      3,2       1,2" in result.stderr
    assert "Warning: besides the moves, topic sea gets replication factor 2" in result.stderr
    assert [r.dry_run for r in commands.controller.requests["CancelOperation"]] == [True, False]


def test_a_dry_run_of_a_cancellation_is_a_plan(commands: Commands) -> None:
    commands.controller.answer(
        "DescribeOperation", pb.DescribeOperationResponse(operation=operation())
    )
    commands.controller.answer("CancelOperation", pb.CancelOperationResponse(plan=PLAN))
    result = commands.run("operations", "cancel", "grow", "--dry-run", "--json")
    document = json.loads(result.stdout)
    assert (document["operation"], document["plan"]["move_count"]) == (None, 1)


def test_a_reversal_names_the_operation_that_it_reverts(commands: Commands) -> None:
    commands.controller.answer("ReverseOperation", pb.ReverseOperationResponse(operation=DONE))
    commands.run("operations", "reverse", "grow", "--yes", "--operation-id", "back")
    (requested,) = commands.controller.requests["ReverseOperation"]
    assert (requested.reversed_operation_id, requested.operation_id) == ("grow", "back")
