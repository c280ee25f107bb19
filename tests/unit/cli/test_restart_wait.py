"""`tidelog brokers check-restart --wait`: what it waits for, and how it ends."""

from __future__ import annotations

import pytest

from tidelog.cli import restart_wait
from tidelog.cli.exit_status import ExitStatus
from tidelog.errors import ErrorCode
from tidelog.v1 import admin_pb2 as pb
from unit.cli.conftest import Commands

SAFE = pb.CheckRestartResponse(safe=True)
UNSAFE = pb.CheckRestartResponse(safe=False, under_min_isr=1)


def broker(
    broker_id: int, status: int = pb.BROKER_STATUS_RUNNING, *, out_of_sync: int = 0
) -> pb.BrokerDetails:
    return pb.BrokerDetails(
        broker_id=broker_id,
        status=status,  # type: ignore[arg-type]
        replicas=3,
        out_of_sync=out_of_sync,
    )


def brokers(*found: pb.BrokerDetails) -> pb.DescribeBrokersResponse:
    return pb.DescribeBrokersResponse(brokers=found)


FULL = brokers(broker(1), broker(2), broker(3))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_wait, "POLL_SECONDS", 0.001)


def test_a_broker_waits_until_all_others_are_in_sync(commands: Commands) -> None:
    commands.controller.answer(
        "DescribeBrokers",
        brokers(broker(1), broker(2, pb.BROKER_STATUS_STOPPING), broker(3)),
        brokers(broker(1), broker(2, pb.BROKER_STATUS_GONE, out_of_sync=3), broker(3)),
        brokers(broker(1), broker(2, out_of_sync=2), broker(3)),
        FULL,
    )
    commands.controller.answer("CheckRestart", SAFE)
    result = commands.run("brokers", "check-restart", "1", "--wait")
    assert result.exit_code == ExitStatus.DONE
    assert result.stdout == "Broker 1 can be stopped now.\n"
    assert result.stderr.splitlines() == [
        "Broker 1 waits: brokers with replicas that are not running: 2.",
        "Broker 1 waits: replicas out of sync: 2, on brokers 2.",
    ]
    assert len(commands.controller.requests["CheckRestart"]) == 1


def test_its_own_replicas_need_not_be_in_sync(commands: Commands) -> None:
    commands.controller.answer("DescribeBrokers", brokers(broker(1, out_of_sync=3), broker(2)))
    commands.controller.answer("CheckRestart", SAFE)
    assert commands.run("brokers", "check-restart", "1", "--wait").exit_code == ExitStatus.DONE


def test_an_empty_broker_that_is_gone_is_not_awaited(commands: Commands) -> None:
    gone = pb.BrokerDetails(broker_id=9, status=pb.BROKER_STATUS_GONE)
    commands.controller.answer("DescribeBrokers", brokers(broker(1), broker(2), gone))
    commands.controller.answer("CheckRestart", SAFE)
    assert commands.run("brokers", "check-restart", "1", "--wait").exit_code == ExitStatus.DONE


def test_a_topic_with_too_few_replicas_is_not_awaited(commands: Commands) -> None:
    commands.controller.answer("DescribeBrokers", FULL)
    commands.controller.answer("CheckRestart", UNSAFE)
    result = commands.run("brokers", "check-restart", "1", "--wait")
    assert result.exit_code == ExitStatus.FAILED
    assert "Broker 1 must not be stopped now." in result.stdout
    # A broker that stops between two requests looks alike in one round.
    assert len(commands.controller.requests["CheckRestart"]) == (
        restart_wait.ROUNDS_OF_A_FINAL_VERDICT
    )


def test_the_wait_ends_in_time_and_names_the_obstacle(commands: Commands) -> None:
    commands.controller.answer("DescribeBrokers", brokers(broker(1), broker(2, out_of_sync=4)))
    result = commands.run("brokers", "check-restart", "1", "--wait", "--wait-timeout", "2")
    assert result.exit_code == ExitStatus.TIMED_OUT
    assert "after 2 s: replicas out of sync: 4, on brokers 2" in result.stderr
    assert commands.controller.requests["CheckRestart"] == []


def test_an_unknown_broker_is_not_awaited(commands: Commands) -> None:
    commands.controller.answer("DescribeBrokers", FULL)
    commands.controller.reject("CheckRestart", ErrorCode.UNKNOWN_BROKER, "broker 9 is not there")
    result = commands.run("brokers", "check-restart", "9", "--wait")
    assert result.exit_code == ExitStatus.NOT_FOUND
