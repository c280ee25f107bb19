"""`tidelog brokers`, `tidelog leaders` and `tidelog throttle`."""

from __future__ import annotations

import json

import pytest

from tidelog.cli.exit_status import ExitStatus
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from unit.cli.conftest import Commands

BROKER = pb.BrokerDetails(
    broker_id=1,
    status=pb.BROKER_STATUS_RUNNING,
    address="127.0.0.1:7501",
    rack="north",
    broker_epoch=9,
    maintenance=True,
    not_added=True,
    replicas=1,
    leaders=1,
)
GONE = pb.BrokerDetails(
    broker_id=2, status=pb.BROKER_STATUS_GONE, replicas=3, gone_at_ms=1_700_000_000_000
)
LED = pb.LeaderResult(topic="sea", partition=3, leader_before=-1, leader=2)


def rejected_leader(code: ErrorCode) -> pb.LeaderResult:
    error = error_to_wire(TidelogError(code, "broker 2 is not in sync"))
    return pb.LeaderResult(topic="sea", partition=4, leader_before=1, leader=2, error=error)


def test_brokers_are_listed_with_their_marks(commands: Commands) -> None:
    commands.controller.answer(
        "DescribeBrokers", pb.DescribeBrokersResponse(brokers=[BROKER, GONE])
    )
    lines = commands.run("brokers", "list").stdout.splitlines()
    assert "running, maintenance, not added" in lines[1]
    assert lines[2].split()[:4] == ["2", "gone", "-", "-"]
    listed = json.loads(commands.run("brokers", "list", "--json").stdout)
    assert [(b["broker_id"], b["status"]) for b in listed] == [(1, "running"), (2, "gone")]


def test_a_broker_is_described_with_its_replicas(commands: Commands) -> None:
    commands.controller.answer("DescribeBrokers", pb.DescribeBrokersResponse(brokers=[BROKER]))
    shown = commands.run("brokers", "describe", "1").stdout
    assert "Broker    1, running, maintenance, not added" in shown
    assert shown.splitlines()[-1].split() == ["sea/1", "leader", "yes", "-"]
    document = json.loads(commands.run("brokers", "describe", "1", "--json").stdout)
    assert document["rack"] == "north"
    assert document["partitions"] == [
        {"topic": "sea", "partition": 1, "role": "leader", "in_sync": True, "move": None}
    ]


def test_a_departed_broker_has_its_departure_time(commands: Commands) -> None:
    commands.controller.answer("DescribeBrokers", pb.DescribeBrokersResponse(brokers=[GONE]))
    assert "gone since 2023-11-14T22:13:20.000Z" in commands.run("brokers", "describe", "2").stdout


@pytest.mark.parametrize(("flag", "begins"), [([], True), (["--off"], False)])
def test_maintenance_begins_and_ends(commands: Commands, flag: list[str], begins: bool) -> None:
    answer = pb.SetMaintenanceResponse(leaders=[LED] if begins else [], leaders_kept=2)
    commands.controller.answer("SetMaintenance", answer)
    result = commands.run("brokers", "maintenance", "1", *flag)
    assert result.exit_code == ExitStatus.DONE
    (requested,) = commands.controller.requests["SetMaintenance"]
    assert (list(requested.broker_ids), requested.maintenance, requested.dry_run) == (
        [1],
        begins,
        False,
    )
    if begins:
        assert "1 partition led by others, 2 kept because no other replica can" in result.stdout


def test_leadership_transfers_time_out(commands: Commands) -> None:
    late = rejected_leader(ErrorCode.REQUEST_TIMED_OUT)
    commands.controller.answer("SetMaintenance", pb.SetMaintenanceResponse(leaders=[late]))
    result = commands.run("brokers", "maintenance", "1", "--json")
    assert result.exit_code == ExitStatus.TIMED_OUT
    (document,) = json.loads(result.stdout)["leaders"]
    assert document["error"] == {
        "code": "REQUEST_TIMED_OUT",
        "message": "broker 2 is not in sync",
        "retriable": True,
        "outcome_unknown": True,
    }


@pytest.mark.parametrize(("safe", "status"), [(True, ExitStatus.DONE), (False, ExitStatus.FAILED)])
def test_the_exit_status_of_a_restart_check_is_its_verdict(
    commands: Commands, safe: bool, status: ExitStatus
) -> None:
    finding = pb.RestartFinding(
        topic="sea", partition=1, effect=pb.RESTART_EFFECT_UNDER_MIN_ISR, reason="2 of 2 needed"
    )
    commands.controller.answer(
        "CheckRestart",
        pb.CheckRestartResponse(safe=safe, under_min_isr=1 - safe, findings=[finding]),
    )
    result = commands.run("brokers", "check-restart", "1")
    assert result.exit_code == status
    assert ("must not be stopped now" in result.stdout) is not safe
    assert result.stdout.splitlines()[-1].split()[:4] == ["sea/1", "under", "min", "ISR"] or (
        "under min isr" in result.stdout.splitlines()[-1]
    )
    document = json.loads(commands.run("brokers", "check-restart", "1", "--json").stdout)
    assert (document["safe"], document["findings"][0]["effect"]) == (safe, "under_min_isr")


def test_preferred_leaders_are_elected_on_request(commands: Commands) -> None:
    commands.controller.answer(
        "ElectPreferredLeaders", pb.ElectPreferredLeadersResponse(partitions=[LED])
    )
    result = commands.run("leaders", "elect-preferred", "sea/3", "bay", "sea/1", "--dry-run")
    (requested,) = commands.controller.requests["ElectPreferredLeaders"]
    selected = [(s.topic, list(s.partitions)) for s in requested.partitions]
    assert (selected, requested.dry_run) == ([("sea", [1, 3]), ("bay", [])], True)
    assert result.stdout.splitlines()[1].split() == ["sea/3", "none", "2", "ok"]


def test_without_arguments_all_preferred_leaders_are_elected(commands: Commands) -> None:
    commands.controller.answer("ElectPreferredLeaders", pb.ElectPreferredLeadersResponse())
    result = commands.run("leaders", "elect-preferred")
    assert result.stdout == "Every partition has its preferred leader.\n"
    (requested,) = commands.controller.requests["ElectPreferredLeaders"]
    assert not requested.partitions


def test_leadership_moves_and_rejected_brokers_are_reported(commands: Commands) -> None:
    answer = pb.MoveLeadersResponse(
        partitions=[LED, rejected_leader(ErrorCode.NOT_ELIGIBLE_LEADER)]
    )
    commands.controller.answer("MoveLeaders", answer)
    result = commands.run("leaders", "move", "sea/3=2", "sea/4=2", "--requested-by", "ann")
    assert result.exit_code == ExitStatus.FAILED
    assert "broker 2 is not in sync" in result.stdout
    (requested,) = commands.controller.requests["MoveLeaders"]
    assert [(m.partition, m.leader) for m in requested.moves] == [(3, 2), (4, 2)]
    assert commands.controller.requested_by == ["ann"]
    document = json.loads(commands.run("leaders", "move", "sea/3=2", "--json").stdout)
    assert [p["leader"] for p in document["partitions"]] == [2, 2]
    assert document["trace_id"]


@pytest.mark.parametrize("words", [["sea/3"], ["sea/3=1,2"], ["sea=1"], ["sea/3=1", "sea/3=2"]])
def test_invalid_leaders_are_wrong_usage(commands: Commands, words: list[str]) -> None:
    assert commands.run("leaders", "move", *words).exit_code == ExitStatus.USAGE
    assert commands.controller.called() == []


def test_a_throttle_is_shown(commands: Commands) -> None:
    bound = pb.Throttle(bytes_per_second=50_000_000)
    commands.controller.answer(
        "DescribeThrottle",
        pb.DescribeThrottleResponse(),
        pb.DescribeThrottleResponse(throttle=bound, revision=44),
    )
    assert commands.run("throttle", "describe").stdout == "Moves use bandwidth without limit.\n"
    assert "at most 50 MB a second" in commands.run("throttle", "describe").stdout
    document = json.loads(commands.run("throttle", "describe", "--json").stdout)
    assert document == {"bytes_per_second": 50_000_000, "revision": 44}


@pytest.mark.parametrize(("rate", "bound"), [("50MB", 50_000_000), ("none", None)])
def test_a_throttle_is_set_and_removed(commands: Commands, rate: str, bound: int | None) -> None:
    commands.controller.answer("DescribeThrottle", pb.DescribeThrottleResponse())
    commands.controller.answer("SetThrottle", pb.SetThrottleResponse(revision=45))
    result = commands.run("throttle", "set", rate, "--expected-revision", "44", "--json")
    (requested,) = commands.controller.requests["SetThrottle"]
    is_bound = requested.throttle.HasField("bytes_per_second")
    assert (requested.throttle.bytes_per_second if is_bound else None) == bound
    assert requested.expected_revision == 44
    document = json.loads(result.stdout)
    assert (document["bytes_per_second"], document["revision"]) == (bound, 45)
    assert document["before"] == {"bytes_per_second": None}


OLD = pb.ProcessVersion(role="broker", id=3, address="h:7503", oldest_level=1, newest_level=1)
NEW = pb.ProcessVersion(
    role="broker", id=1, address="h:7501", version="0.2.0", oldest_level=1, newest_level=2
)
LEVELS = pb.DescribeFeatureLevelResponse(level=1, newest_level=2, revision=44, processes=[NEW, OLD])


def test_an_upgrade_raises_the_level_to_the_newest_one(commands: Commands) -> None:
    commands.controller.answer("DescribeFeatureLevel", LEVELS)
    commands.controller.answer("RaiseFeatureLevel", pb.RaiseFeatureLevelResponse(before=1))
    result = commands.run("cluster", "upgrade", "--yes")
    assert result.stdout == "The cluster is at feature level 2; before: 1.\n"
    dry, real = commands.controller.requests["RaiseFeatureLevel"]
    assert (dry.dry_run, real.dry_run, real.level, real.expected_revision) == (True, False, 2, 44)


def test_a_dry_run_of_an_upgrade_shows_the_levels_of_each_process(commands: Commands) -> None:
    commands.controller.answer("DescribeFeatureLevel", LEVELS)
    why = error_to_wire(TidelogError(ErrorCode.UNSUPPORTED_VERSION, "broker 3 is too old"))
    commands.controller.answer("RaiseFeatureLevel", pb.RaiseFeatureLevelResponse(error=why))
    result = commands.run("cluster", "upgrade", "--dry-run")
    assert result.exit_code == ExitStatus.FAILED
    shown = [line.split() for line in result.stdout.splitlines()]
    assert ["broker", "1", "0.2.0", "1-2", "h:7501"] in shown
    assert ["broker", "3", "-", "1-1", "h:7503"] in shown
    assert "broker 3 is too old" in result.stderr


def test_an_upgrade_needs_consent(commands: Commands) -> None:
    commands.controller.answer("DescribeFeatureLevel", LEVELS)
    commands.controller.answer("RaiseFeatureLevel", pb.RaiseFeatureLevelResponse(before=1))
    result = commands.run("cluster", "upgrade")
    assert result.exit_code == ExitStatus.USAGE
    assert "never a lower one again; give --yes" in result.stderr
    (dry,) = commands.controller.requests["RaiseFeatureLevel"]
    assert dry.dry_run


def test_an_upgrade_to_the_present_level_changes_nothing(commands: Commands) -> None:
    commands.controller.answer("DescribeFeatureLevel", LEVELS)
    commands.controller.answer("RaiseFeatureLevel", pb.RaiseFeatureLevelResponse(before=1))
    document = json.loads(commands.run("cluster", "upgrade", "--to", "1", "--json").stdout)
    assert (document["before"], document["level"], document["trace_id"]) == (1, 1, None)
    assert [p["newest_level"] for p in document["processes"]] == [2, 1]


@pytest.mark.parametrize("rate", ["fast", "-5", "5XB", "", "1e6", "MB"])
def test_an_invalid_rate_is_wrong_usage(commands: Commands, rate: str) -> None:
    result = commands.run("throttle", "set", "--", rate)
    assert result.exit_code == ExitStatus.USAGE
    assert "1GiB or 50MB, per second; or none for no limit" in result.stderr
    assert commands.controller.called() == []
