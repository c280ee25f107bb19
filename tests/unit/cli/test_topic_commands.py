"""`tidelog cluster` and `tidelog topics`."""

from __future__ import annotations

import json

import pytest

from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.session import Session
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.gateway_reports import AnnouncedGateway
from tidelog.inspection.resource_pressures import ResourcePressure
from tidelog.model import NO_LEADER
from unit.cli.conftest import Commands

FILES = ResourcePressure("open_files", 1_020, 1_024, 5)


def test_the_cluster_is_described(commands: Commands) -> None:
    result = commands.run("cluster", "describe")
    assert result.exit_code == ExitStatus.DONE
    assert "Controller  7 at 127.0.0.1:" in result.stdout
    assert "1 with 2 partitions: ok" in result.stdout
    assert "running" in result.stdout


def test_the_cluster_is_described_as_json(commands: Commands) -> None:
    document = json.loads(commands.run("cluster", "describe", "--json").stdout)
    assert document["cluster_id"] == "fake"
    assert document["controller"]["controller_id"] == 7
    assert [broker["leaders"] for broker in document["brokers"]] == [1, 1]
    assert document["without_leader"] == 0


def test_the_cluster_is_described_with_its_gateways(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gateways(*_: object) -> list[AnnouncedGateway]:
        return [
            AnnouncedGateway("a:7600", "one", 7, "0.1.0", 5, 900),
            AnnouncedGateway("b:7600", "two", 8, "0.1.0", 5, 75_000, pressures=(FILES,)),
        ]

    monkeypatch.setattr(Session, "gateways", gateways)
    described = commands.run("cluster", "describe").stdout
    assert "Gateways    a:7600 on one is alive, b:7600 on two is silent for 1 min 15 s" in described
    assert "for 1 min 15 s, short of open_files (1,020 of 1,024)" in described
    document = json.loads(commands.run("cluster", "describe", "--json").stdout)
    assert [gateway["state"] for gateway in document["gateways"]] == ["alive", "silent"]
    assert document["gateways"][0]["pid"] == 7
    assert document["gateways"][1]["pressures"][0]["resource"] == "open_files"


def test_options_may_precede_the_command(commands: Commands) -> None:
    assert json.loads(commands.run("--json", "cluster", "describe").stdout)["topics"] == 1


def test_a_topic_is_created_with_its_settings(commands: Commands) -> None:
    result = commands.run(
        *("topics", "create", "wide", "--partitions", "3", "-c", "retention_ms=1000")
    )
    assert result.stdout == "Created topic wide: 3 partitions, replication factor 2.\n"
    assert len(commands.cluster.topics["wide"].partitions) == 3
    assert commands.cluster.topics["wide"].config == {"retention_ms": "1000"}


def test_a_created_topic_is_printed_as_json(commands: Commands) -> None:
    document = json.loads(commands.run("topics", "create", "wide", "-r", "1", "--json").stdout)
    assert (document["topic"], document["replication_factor"]) == ("wide", 1)
    assert document["pending_brokers"] == []


def test_an_existing_topic_is_rejected_in_one_line(commands: Commands) -> None:
    result = commands.run("topics", "create", "sea")
    assert result.exit_code == ExitStatus.FAILED
    assert result.stderr == "error: there is one already\n"
    assert result.stdout == ""


@pytest.mark.parametrize("setting", ["retention_ms", "=5", "retention_ms="])
def test_a_setting_without_a_key_or_value_is_wrong_usage(commands: Commands, setting: str) -> None:
    result = commands.run("topics", "create", "wide", "--config", setting)
    assert result.exit_code == ExitStatus.USAGE
    assert "is not KEY=VALUE" in result.stderr
    assert "wide" not in commands.cluster.topics


def test_a_create_without_an_answer_times_out_and_is_not_unreachable(commands: Commands) -> None:
    assert commands.cluster.controller is not None
    for _ in range(60):
        commands.cluster.controller.script.append(
            TidelogError(ErrorCode.METADATA_STORE_UNAVAILABLE, "etcd is away")
        )
    result = commands.run("topics", "create", "wide", "--timeout", "0.2")
    assert result.exit_code == ExitStatus.TIMED_OUT
    assert "etcd is away" in result.stderr


def test_topics_are_listed(commands: Commands) -> None:
    commands.cluster.create("bay", [0])
    lines = commands.run("topics", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["topic", "bay", "sea"]
    listed = json.loads(commands.run("topics", "list", "--json").stdout)
    assert [(topic["topic"], topic["partitions"]) for topic in listed] == [("bay", 1), ("sea", 2)]


def test_no_topics_are_an_empty_list(commands: Commands) -> None:
    commands.cluster.topics.clear()
    assert json.loads(commands.run("topics", "list", "--json").stdout) == []
    result = commands.run("topics", "list")
    assert result.stdout == ""
    assert "topics create" in result.stderr


def test_a_topic_is_described(commands: Commands) -> None:
    commands.cluster.elect("sea", 1, -1)
    result = commands.run("topics", "describe", "sea")
    assert "Config       all defaults" in result.stdout
    assert "no leader" in result.stdout
    document = json.loads(commands.run("topics", "describe", "sea", "--json").stdout)
    assert [p["leader"] for p in document["partitions"]] == [0, None]
    assert document["partitions"][0]["health"] == "ok"


@pytest.mark.parametrize("command", [["topics", "describe"], ["topics", "delete", "--yes"]])
def test_an_unknown_topic_is_not_found(commands: Commands, command: list[str]) -> None:
    result = commands.run(*command, "nosuch")
    assert result.exit_code == ExitStatus.NOT_FOUND
    assert "'nosuch' does not exist" in result.stderr


def test_a_topic_is_deleted_with_yes(commands: Commands) -> None:
    assert commands.run("topics", "delete", "sea", "--yes").stdout == "Deleted topic sea.\n"
    assert "sea" not in commands.cluster.topics


def test_a_topic_is_deleted_after_its_name_was_typed(commands: Commands) -> None:
    rejected = commands.run("topics", "delete", "sea", input_="no\n", interactive=True)
    assert rejected.exit_code == ExitStatus.FAILED
    assert "Nothing was deleted" in rejected.stderr
    assert "sea" in commands.cluster.topics
    done = commands.run("topics", "delete", "sea", input_="sea\n", interactive=True)
    assert done.exit_code == ExitStatus.DONE
    assert "sea" not in commands.cluster.topics


def test_without_a_terminal_yes_is_needed(commands: Commands) -> None:
    result = commands.run("topics", "delete", "sea")
    assert result.exit_code == ExitStatus.USAGE
    assert "--yes" in result.stderr
    assert "sea" in commands.cluster.topics


def test_an_address_without_a_port_is_wrong_usage(commands: Commands) -> None:
    result = commands.run("topics", "list", "--bootstrap", "localhost")
    assert result.exit_code == ExitStatus.USAGE
    assert "is not host:port" in result.stderr


def test_a_missing_cluster_is_unreachable(commands: Commands) -> None:
    addresses = ",".join(commands.cluster.bootstrap())
    commands.in_loop(commands.cluster.close())
    result = commands.run("topics", "list", "--bootstrap", addresses)
    assert result.exit_code == ExitStatus.UNREACHABLE
    assert "no broker listens at" in result.stderr


def test_a_partition_without_a_leader_is_recovered_with_yes(commands: Commands) -> None:
    commands.cluster.topics["sea"].partitions[1].leader = NO_LEADER
    result = commands.run("topics", "recover", "sea", "--yes")
    assert result.stdout == "Partition 1 of topic sea has a leader.\n"
    assert commands.cluster.topics["sea"].partitions[1].leader == 0


def test_a_recovery_asks_for_confirmation_and_states_the_loss(commands: Commands) -> None:
    commands.cluster.topics["sea"].partitions[1].leader = NO_LEADER
    rejected = commands.run(
        *("topics", "recover", "sea", "--from-live-replicas"), input_="n\n", interactive=True
    )
    assert rejected.exit_code == ExitStatus.FAILED
    assert "1 partition (1) without a leader" in rejected.stderr
    assert "lost for good, even if they were acknowledged" in rejected.stderr
    assert "does not wait for" in rejected.stderr
    assert commands.cluster.topics["sea"].partitions[1].leader == NO_LEADER
    done = commands.run("topics", "recover", "sea", input_="y\n", interactive=True)
    assert done.exit_code == ExitStatus.DONE
    assert "does not wait for" not in done.stderr


def test_a_recovery_without_a_terminal_needs_yes(commands: Commands) -> None:
    result = commands.run("topics", "recover", "sea")
    assert result.exit_code == ExitStatus.USAGE
    assert "give --yes" in result.stderr


def test_with_leaders_everywhere_there_is_nothing_to_recover(commands: Commands) -> None:
    result = commands.run("topics", "recover", "sea", interactive=True)
    assert result.stdout == "Every partition of topic sea has a leader.\n"


def test_a_pending_recovery_names_what_it_waits_for(commands: Commands) -> None:
    assert commands.cluster.controller is not None
    waits = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "sea/0 waits for the replicas [3]")
    commands.cluster.controller.script.append(waits)
    result = commands.run("topics", "recover", "sea", "--partition", "0", "--yes", "--json")
    assert result.exit_code == ExitStatus.TIMED_OUT
    assert "waits for the replicas [3]" in result.stderr
    (only,) = json.loads(result.stdout)["results"]
    assert only["partition"] == 0
    assert only["error"]["code"] == "REQUEST_TIMED_OUT"
    assert "waits for the replicas [3]" in only["error"]["message"]


def test_recovery_of_an_unknown_topic_is_not_found(commands: Commands) -> None:
    result = commands.run("topics", "recover", "bay", "--yes")
    assert result.exit_code == ExitStatus.NOT_FOUND


def test_internal_topics_are_listed_on_request(commands: Commands) -> None:
    commands.cluster.create("__state_changes", [0])
    assert "__state_changes" not in commands.run("topics", "list").stdout
    assert "__state_changes" in commands.run("topics", "list", "--internal").stdout


def test_json_has_the_trace_id_of_the_request(commands: Commands) -> None:
    created = json.loads(commands.run("topics", "create", "bay", "-r", "1", "--json").stdout)
    deleted = json.loads(commands.run("topics", "delete", "bay", "--yes", "--json").stdout)
    assert commands.cluster.controller is not None
    trace_ids = [created["trace_id"], deleted["trace_id"]]
    assert commands.cluster.controller.trace_ids == trace_ids
