"""Descriptions of surviving replicas, and the choice of one of them."""

from __future__ import annotations

import pytest

from tidelog.admin_messages import RecoveryChoice
from tidelog.errors import ErrorCode
from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Kind, Stage
from tidelog_controller.state.admin_answers import RecoveryAnswer, RecoveryView
from tidelog_controller.state.admin_requests import DescribeRecovery
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import RecoverPartitions
from tidelog_runtime.metadata.schema import decode_recovery_consent
from tidelog_runtime.metadata.store import Transaction
from unit.controller.driver import KEYS, Driver
from unit.controller.lost_data import MANUAL, T0, consents, down, is_unclean, leader, reboot, write


def diverged() -> Driver:
    """Of the brokers that are back, broker 1 holds the most records; broker 3 is away."""
    driver = down(config=MANUAL)
    reboot(driver, 1, end=9)
    reboot(driver, 2, end=7)
    driver.watch()
    assert leader(driver) == NO_LEADER
    return driver


def described(driver: Driver) -> RecoveryAnswer:
    answer = driver.ask(DescribeRecovery(0, "t", (), 5_000, 0, "")).answer
    assert isinstance(answer, RecoveryAnswer)
    return answer


def only(answer: RecoveryAnswer) -> RecoveryView:
    (view,) = answer.partitions
    return view


def choose(driver: Driver, *choices: RecoveryChoice) -> AdminReply:
    return driver.ask(RecoverPartitions(0, "t", (), False, 5_000, choices=choices))


def test_survivors_are_described_with_what_each_choice_would_lose() -> None:
    driver = down(config=MANUAL)
    reboot(driver, 1, end=9)
    reboot(driver, 2, end=7)
    reboot(driver, 3, end=4)
    driver.watch()
    view = only(described(driver))
    found = {s.broker_id: (s.log.log_end_offset, s.lost_records) for s in view.survivors if s.log}
    assert found == {1: (9, 0), 2: (7, 2), 3: (4, 5)}
    assert view.held.revision == driver.store.items[KEYS.leader_and_isr(T0)].mod_revision
    assert set(view.last_known) == {1, 2, 3}
    assert (leader(driver), consents(driver)) == (NO_LEADER, [])


def test_partitions_without_a_topic_are_rejected() -> None:
    reply = diverged().ask(DescribeRecovery(0, "", (0,), 5_000, 0, ""))
    assert reply.error is not None
    assert reply.error.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("choices", "code"),
    [
        ([RecoveryChoice(0, 4)], ErrorCode.INVALID_REQUEST),
        ([RecoveryChoice(0, 1), RecoveryChoice(0, 2)], ErrorCode.INVALID_REQUEST),
        ([RecoveryChoice(0, 1, 999_999)], ErrorCode.REVISION_CONFLICT),
        ([RecoveryChoice(7, 1)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_description_of_choices_is_rejected_like_the_choices(
    choices: list[RecoveryChoice], code: ErrorCode
) -> None:
    driver = diverged()
    look = DescribeRecovery(0, "t", (), 5_000, 0, "", choices=tuple(choices))
    rejected, carried_out = driver.ask(look).error, choose(driver, *choices).error
    assert rejected is not None
    assert carried_out is not None
    assert (rejected.code, rejected.message) == (code, carried_out.message)


def test_a_description_of_a_choice_describes_its_partition_and_elects_no_leader() -> None:
    driver = diverged()
    look = DescribeRecovery(0, "t", (), 5_000, 0, "", choices=(RecoveryChoice(0, 2),))
    answer = driver.ask(look).answer
    assert isinstance(answer, RecoveryAnswer)
    assert only(answer).name == T0
    assert (leader(driver), consents(driver)) == (NO_LEADER, [])


def test_an_absent_broker_is_named_and_the_loss_is_unknown() -> None:
    view = only(described(diverged()))
    (away,) = [survivor for survivor in view.survivors if survivor.broker_id == 3]
    assert "not running" in away.problem
    assert {survivor.lost_records for survivor in view.survivors} == {-1}
    assert "[3]" in view.waits_for


def test_a_replica_that_does_not_describe_its_log_in_time_is_named() -> None:
    driver = diverged()
    driver.brokers[2].silent = True
    driver.feed(DescribeRecovery(9, "t", (), 2_000, 0, ""))
    assert 9 not in driver.replies
    driver.pass_time(2_000)
    answer = driver.replies[9].answer
    assert isinstance(answer, RecoveryAnswer)
    problems = {s.broker_id: s.problem for s in only(answer).survivors}
    assert problems[1] == ""
    assert "has not told" in problems[2]


def test_brokers_are_queried_only_while_a_description_is_requested() -> None:
    driver = diverged()
    described(driver)
    driver.questions.clear()
    driver.pass_time(60_000)
    assert driver.questions == []


def test_partitions_with_a_leader_are_left_out() -> None:
    driver = down(partitions=2, config=MANUAL)
    driver.start_broker(1, whole_since=1)
    driver.watch()
    assert described(driver).partitions == ()


def test_the_chosen_replica_leads_and_the_choice_is_consumed() -> None:
    driver = diverged()
    revision = only(described(driver)).held.revision
    reply = choose(driver, RecoveryChoice(0, 2, revision))
    assert (leader(driver), is_unclean(driver)) == (2, True)
    assert reply.partitions == ((0, None),)
    assert consents(driver) == []
    published = driver.published_events(Kind.RECOVERY_CONSENT, stage=Stage.COMPLETED)
    assert [t.details["leader"] for t in published] == [2]


def test_a_repeated_choice_succeeds() -> None:
    driver = diverged()
    revision = only(described(driver)).held.revision
    choose(driver, RecoveryChoice(0, 2, revision))
    state = driver.state()
    reply = choose(driver, RecoveryChoice(0, 2, revision))
    assert (reply.error, reply.partitions) == (None, ((0, None),))
    assert driver.state() == state


def test_a_choice_does_not_apply_to_a_partition_that_changed_before_it_was_written() -> None:
    driver = diverged()
    revision = only(described(driver)).held.revision

    def another_loses_data(_: Transaction) -> None:
        driver.before_transaction = None
        write(driver, driver.state().resigned(1))

    driver.before_transaction = another_loses_data
    ((_, error),) = choose(driver, RecoveryChoice(0, 2, revision)).partitions
    assert error is not None
    assert error.code is ErrorCode.REVISION_CONFLICT
    assert (leader(driver), consents(driver)) == (NO_LEADER, [])


def test_a_choice_remains_until_its_broker_returns_also_at_the_next_controller() -> None:
    driver = diverged()
    driver.feed(RecoverPartitions(9, "t", (), False, 1_000, choices=(RecoveryChoice(0, 3),)))
    driver.pass_time(1_000)
    ((_, error),) = driver.replies[9].partitions
    assert error is not None
    assert "chosen broker 3" in error.message
    entry = decode_recovery_consent(driver.store.items[KEYS.recovery(T0)].value)
    assert entry.broker_id == 3
    driver.take_over()
    reboot(driver, 3, end=1)
    driver.watch()
    assert (leader(driver), consents(driver)) == (3, [])


@pytest.mark.rule("last-request-applies")
def test_of_two_different_choices_the_later_applies() -> None:
    driver = down(config=MANUAL)
    reboot(driver, 1, end=9)
    driver.watch()
    for request_id, broker_id in ((77, 2), (78, 3)):
        choice = RecoveryChoice(0, broker_id)
        driver.feed(RecoverPartitions(request_id, "t", (), False, 5_000, choices=(choice,)))
        driver.watch()
    ((_, error),) = driver.replies[77].partitions
    assert error is not None
    assert error.code is ErrorCode.REVISION_CONFLICT
    assert 78 not in driver.replies
    reboot(driver, 2, end=9)
    driver.watch()
    assert leader(driver) == NO_LEADER
    reboot(driver, 3, end=4)
    driver.watch()
    assert leader(driver) == 3


def test_several_leaders_can_be_chosen_at_once() -> None:
    driver = down(partitions=2, config=MANUAL)
    reboot(driver, 1, 2)
    driver.watch()
    choose(driver, RecoveryChoice(0, 1), RecoveryChoice(1, 2))
    assert (leader(driver, 0), leader(driver, 1)) == (1, 2)


@pytest.mark.parametrize(
    ("choices", "code"),
    [
        ((RecoveryChoice(0, 9),), ErrorCode.INVALID_REQUEST),
        ((RecoveryChoice(0, 1), RecoveryChoice(0, 2)), ErrorCode.INVALID_REQUEST),
        ((RecoveryChoice(7, 1),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((RecoveryChoice(0, 1, 1),), ErrorCode.REVISION_CONFLICT),
    ],
)
def test_an_invalid_choice_is_rejected_and_leaves_nothing(
    choices: tuple[RecoveryChoice, ...], code: ErrorCode
) -> None:
    driver = diverged()
    error = choose(driver, *choices).error
    assert error is not None
    assert error.code is code
    assert consents(driver) == []


def test_a_choice_for_a_partition_with_a_leader_is_rejected() -> None:
    driver = diverged()
    choose(driver, RecoveryChoice(0, 1))
    error = choose(driver, RecoveryChoice(0, 2)).error
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST
    assert leader(driver) == 1
