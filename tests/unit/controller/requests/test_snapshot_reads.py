"""Descriptions of many partitions are made off the event loop."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog_controller.requests import describe_recovery, snapshot_reads
from tidelog_controller.requests.describe_recovery import DescribeRecoveryHandler
from tidelog_controller.state.admin_answers import RecoveryAnswer, RestartAnswer
from tidelog_controller.state.admin_requests import (
    AlterTopicConfig,
    CheckRestart,
    DescribeBrokers,
    DescribeRecovery,
    DescribeTopics,
    ElectPreferredLeaders,
    SetMaintenance,
)
from tidelog_controller.state.commands import AdminReply, Command, ReadSnapshot, Reply
from tidelog_controller.state.events import AdminRequest, Event, Tick
from unit.controller.driver import WALL_MS, Driver, cluster
from unit.controller.lost_data import down
from unit.controller.off_loop import snapshot_read

REQUESTS: list[AdminRequest] = [
    CheckRestart(0, 1, 2, "1"),
    CheckRestart(0, 9, 0, ""),
    DescribeBrokers(0, ()),
    DescribeBrokers(0, (9,)),
    DescribeTopics(0, (), False, False, 2, ""),
    DescribeTopics(0, ("u",), False, False, 0, ""),
    DescribeRecovery(0, "t", (), 0, 0, ""),
    DescribeRecovery(0, "u", (), 0, 0, ""),
    ElectPreferredLeaders(0, (), True, 0),
    SetMaintenance(0, (1,), True, True, 0),
    SetMaintenance(0, (9,), True, True, 0),
    AlterTopicConfig(0, "t", "", {"min_insync_replicas": "3"}, (), 0, True, 0),
]


def with_topic() -> Driver:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=4)
    driver.kill_broker(2)
    driver.watch()
    return driver


def handled(driver: Driver, event: Event) -> list[Command]:
    return driver.controller.handle(event, driver.now_ms, WALL_MS + driver.now_ms)


def reads(commands: list[Command]) -> list[ReadSnapshot]:
    return [command for command in commands if isinstance(command, ReadSnapshot)]


@pytest.fixture
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_reads, "MAX_READ_AT_ONCE", 3)


def test_the_answer_does_not_depend_on_how_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers() -> list[str]:
        return [repr(driver.ask(request)) for request in REQUESTS]

    driver = with_topic()
    at_once = answers()
    monkeypatch.setattr(snapshot_reads, "MAX_READ_AT_ONCE", 0)
    assert answers() == at_once


@pytest.mark.usefixtures("_few_at_once")
@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_a_request_step_does_not_read_many_partitions(request_: AdminRequest) -> None:
    out = handled(with_topic(), request_._replace(request_id=90))
    assert [read.id for read in reads(out)] == [90]
    assert not [command for command in out if isinstance(command, Reply)]


@pytest.mark.usefixtures("_few_at_once")
def test_reads_run_one_at_a_time_and_see_the_state_at_their_beginning() -> None:
    driver = with_topic()
    (first,) = reads(handled(driver, CheckRestart(90, 1, 0, "")))
    assert not reads(handled(driver, CheckRestart(91, 1, 0, "")))
    # Only the second read sees later changes.
    driver.delete_topic()
    out = handled(driver, snapshot_read(first))
    (second,) = reads(out)
    out += handled(driver, snapshot_read(second))
    answers = {c.request_id: c.reply.answer for c in out if isinstance(c, Reply)}
    counts = [sum(a.counts.values()) for a in answers.values() if isinstance(a, RestartAnswer)]
    assert (list(answers), counts) == ([90, 91], [4, 0])


@pytest.mark.usefixtures("_few_at_once")
def test_the_number_of_waiting_reads_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_reads, "MAX_READS_WAITING", 2)
    driver = with_topic()
    for request_id in (90, 91):
        handled(driver, DescribeBrokers(request_id, ()))
    (rejected,) = handled(driver, DescribeBrokers(92, ()))
    assert isinstance(rejected, Reply)
    assert rejected.reply.error is not None
    assert rejected.reply.error.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_step_describes_a_bounded_number_of_recoverable_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = down(partitions=5, config={"recovery": "manual"})
    asked = DescribeRecovery(0, "t", (), 0, 0, "")
    at_once = driver.ask(asked)
    assert isinstance(at_once.answer, RecoveryAnswer)
    assert len(at_once.answer.partitions) == 5
    monkeypatch.setattr(describe_recovery, "MAX_VIEWED_PER_STEP", 2)
    viewed: list[int] = []
    view = describe_recovery.DescribeRecoveryHandler._view

    def counted(handler: describe_recovery.DescribeRecoveryHandler, name: object) -> object:
        viewed[-1] += 1
        return view(handler, name)  # type: ignore[arg-type]

    monkeypatch.setattr(describe_recovery.DescribeRecoveryHandler, "_view", counted)
    # The second of two requests follows the first.
    events: list[Event] = [asked._replace(request_id=89), asked._replace(request_id=90)]
    replies: dict[int, AdminReply] = {}
    while events or driver.controller.has_more_decisions:
        viewed.append(0)
        out = handled(driver, events.pop(0) if events else Tick())
        replies |= {c.request_id: c.reply for c in out if isinstance(c, Reply)}
    assert max(viewed) == 2
    assert list(replies) == [89, 90]
    assert replies[90].answer == replies[89].answer == at_once.answer


def test_a_step_checks_a_bounded_number_of_partitions_that_a_description_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(describe_recovery, "MAX_VIEWED_PER_STEP", 4)
    driver = down(partitions=20)
    driver.start_broker(1)
    driver.watch()
    checked: list[int] = []
    undescribed, handle = DescribeRecoveryHandler._undescribed, driver.controller.handle

    def counted(handler: DescribeRecoveryHandler, name: TopicPartition) -> bool:
        checked[-1] += 1
        return undescribed(handler, name)

    def handled_too(*parts: object) -> object:
        checked.append(0)
        return handle(*parts)  # type: ignore[arg-type]

    monkeypatch.setattr(DescribeRecoveryHandler, "_undescribed", counted)
    monkeypatch.setattr(driver.controller, "handle", handled_too)
    driver.feed(DescribeRecovery(90, "t", (), 5_000, 0, ""))
    answer = driver.replies[90].answer
    assert isinstance(answer, RecoveryAnswer)
    assert len(answer.partitions) == 20
    assert sum(checked) >= 20
    assert max(checked) <= 4
    assert not driver.controller.context.inspected


def test_a_partition_is_described_until_the_last_request_for_it_ends() -> None:
    driver = down(partitions=3)
    driver.start_broker(1).silent = True
    driver.watch()
    for request_id, numbers, timeout_ms in ((90, (0, 1), 1_000), (91, (1, 2), 2_000)):
        driver.feed(DescribeRecovery(request_id, "t", numbers, timeout_ms, 0, ""))
    inspected = driver.controller.context.inspected
    assert sorted(name.partition for name in inspected) == [0, 1, 2]
    driver.pass_time(1_000)
    assert sorted(name.partition for name in inspected) == [1, 2]
    driver.pass_time(1_000)
    assert not inspected
