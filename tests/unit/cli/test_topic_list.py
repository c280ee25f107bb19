"""`tidelog topics list` with sizes and rates, and the mark of unprotected topics."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.session import Session
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.state_reports import ServiceState, StateRequest
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1 import broker_pb2
from unit.cli.conftest import Commands
from unit.cli.test_produce_consume import fill


def listed(commands: Commands, *arguments: str) -> list[dict[str, Any]]:
    result = commands.run("topics", "list", "--json", *arguments)
    assert result.exit_code == ExitStatus.DONE, result.stderr
    documents: list[dict[str, Any]] = json.loads(result.stdout)
    return documents


def row_of(commands: Commands, *arguments: str) -> list[str]:
    """The cells of the only topic, by their headings."""
    heading, row = commands.run("topics", "list", *arguments).stdout.splitlines()
    assert heading.split()[0] == "topic"
    return row.split()


def count_metadata_as_replicated(commands: Commands, factor: int) -> None:
    """Brokers report this replication factor for every topic."""
    for broker in commands.cluster.brokers.values():
        own = broker.metadata

        def metadata(own: Any = own) -> broker_pb2.MetadataResponse:
            answer = own(broker_pb2.MetadataRequest())
            for topic in answer.topics:
                topic.replication_factor = factor
            return answer  # type: ignore[no-any-return]

        broker.metadata_of = metadata


def test_topics_are_listed_with_records_and_bytes_of_all_leaders(commands: Commands) -> None:
    fill(commands, 0, [b"ebb", b"flow"])
    fill(commands, 1, [b"swell"])
    (document,) = listed(commands)
    size = sum(
        len(batch.records)
        for partition in commands.cluster.topics["sea"].partitions
        for batch in partition.batches
    )
    assert document["approximate_records"] == 3
    assert document["leader_bytes"] == document["total_bytes"] == size
    assert (document["partitions_unknown"], document["replicas_unknown"]) == (0, 0)
    assert row_of(commands)[4] == "3"


def test_deleted_records_do_not_count(commands: Commands) -> None:
    fill(commands, 0, [b"ebb", b"flow"])
    commands.cluster.partition("sea").log_start = 1
    assert listed(commands)[0]["approximate_records"] == 1


def test_of_a_silent_broker_the_part_is_unknown_and_the_broker_is_named(
    commands: Commands,
) -> None:
    fill(commands, 0, [b"ebb"])
    silent = commands.cluster.brokers[1]
    commands.in_loop(silent.close())
    silent.alive = True  # the other one takes it for registered
    result = commands.run("topics", "list")
    assert "≥ 1 " in result.stdout
    assert f"broker-1 at {silent.address} gave no answer" in result.stderr
    (document,) = listed(commands)
    assert (document["approximate_records"], document["partitions_unknown"]) == (1, 1)


def test_what_no_broker_reports_is_unknown_and_not_zero(commands: Commands) -> None:
    commands.cluster.elect("sea", 0, -1)
    commands.cluster.elect("sea", 1, -1)
    assert listed(commands)[0]["leader_bytes"] is None
    assert "unknown" in row_of(commands)


def test_a_brief_list_asks_no_broker_for_sizes(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Session, "service_states")
    assert "leader_bytes" not in listed(commands, "--brief")[0]
    assert commands.run("topics", "list", "--brief").stdout.splitlines()[0].split() == [
        "topic", "partitions", "replication", "health",
    ]  # fmt: skip


def test_a_brief_list_has_no_rates(commands: Commands) -> None:
    result = commands.run("topics", "list", "--brief", "--rates", "1")
    assert result.exit_code == ExitStatus.USAGE
    assert "give one of them" in result.stderr


def test_each_broker_describes_itself_once_and_with_rates_twice(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[StateRequest] = []
    own = Session.service_states

    async def states(session: Session, request: StateRequest, timeout_ms: int) -> ReportedStates:
        asked.append(request)
        reported = await own(session, request, timeout_ms)
        # The second report is two seconds later by the clocks of brokers.
        return replace(reported, states=[_later(s, len(asked)) for s in reported.states])

    monkeypatch.setattr(Session, "service_states", states)
    listed(commands)
    assert asked == [StateRequest("sea")]
    (document,) = listed(commands, "--rates", "0.1")
    assert len(asked) == 3
    assert (document["records_per_second"], document["partitions_unmeasured"]) == (0.0, 0)
    assert row_of(commands, "--rates", "0.1")[9:12] == ["0", "0", "B/s"]


def _later(state: ServiceState, number: int) -> ServiceState:
    return replace(state, now_ms=2_000 * number)


# Topics with a single replica.


def test_a_topic_with_one_replica_is_marked_in_every_view(commands: Commands) -> None:
    assert "1 (unprotected)" in commands.run("topics", "list").stdout
    assert "factor 1 (unprotected)" in commands.run("topics", "describe", "sea").stdout
    assert "1 unprotected (a single replica): sea" in commands.run("cluster", "describe").stdout
    assert listed(commands)[0]["unprotected"] is True
    described = json.loads(commands.run("cluster", "describe", "--json").stdout)
    assert described["unprotected_topics"] == ["sea"]


def test_a_replicated_topic_has_no_mark(commands: Commands) -> None:
    count_metadata_as_replicated(commands, 3)
    for command in (("topics", "list"), ("topics", "describe", "sea"), ("cluster", "describe")):
        assert "unprotected" not in commands.run(*command).stdout
    assert listed(commands)[0]["unprotected"] is False


def test_a_topic_with_one_replica_is_created_on_request_with_a_warning(commands: Commands) -> None:
    created = commands.run("topics", "create", "wide", "-r", "1")
    assert "Warning: Topic wide is unprotected" in created.stderr
    assert "tidelog topics set-replication-factor wide -r 2" in created.stderr
    protected = commands.run("topics", "create", "wider")
    assert "unprotected" not in protected.stderr


def test_on_a_single_broker_a_topic_is_created_and_the_command_says_that_it_is_unprotected(
    commands: Commands,
) -> None:
    commands.in_loop(commands.cluster.brokers[1].close())
    created = commands.run("topics", "create", "wide", "--json")
    assert created.exit_code == ExitStatus.DONE
    document = json.loads(created.stdout)
    assert (document["replication_factor"], document["unprotected"]) == (1, True)
    assert len(document["warnings"]) == 1
    assert "the cluster has one broker" in created.stderr


def test_a_plan_of_one_replica_has_a_warning(commands: Commands) -> None:
    commands.controller.answer(
        "SetReplicationFactor", pb.SetReplicationFactorResponse(plan=pb.Plan())
    )
    for factor, is_warned in (("1", True), ("2", False)):
        arguments = ("topics", "set-replication-factor", "sea", "-r", factor, "--dry-run")
        planned = commands.run(*arguments).stdout
        assert ("Warning: With one replica sea would be unprotected" in planned) is is_warned
