"""Leadership by request, by automatic balancing, and in maintenance."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_controller.policies.leader_balance import LeaderBalancing
from tidelog_controller.requests import leader_admin, snapshot_reads
from tidelog_controller.state.admin_answers import LeadersAnswer
from tidelog_controller.state.admin_requests import (
    ElectPreferredLeaders,
    MoveLeaders,
    PartitionSelector,
    Reassignment,
    RemovedBrokers,
    SetMaintenance,
    WantedReplicas,
)
from tidelog_controller.state.commands import AdminReply
from unit.controller.driver import CALLER, KEYS, Driver, cluster
from unit.controller.operated import catch_up

INTERVAL_MS = 60_000


@pytest.fixture(autouse=True, params=["at once", "in steps"])
def _size_of_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs twice: with few partitions per request, and with partitions that are read off
    the event loop and checked in many steps.
    """
    if request.param == "in steps":
        monkeypatch.setattr(snapshot_reads, "MAX_READ_AT_ONCE", 0)
        monkeypatch.setattr(leader_admin, "MAX_CHECKED_PER_STEP", 1)
        monkeypatch.setattr(leader_admin, "MIN_CHECKED_PER_STEP", 1)


def with_topic(partitions: int = 3) -> Driver:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=partitions)
    driver.published.clear()
    return driver


def back(driver: Driver, broker_id: int) -> None:
    """The broker returns and rejoins every ISR; the leaders that replaced it keep leading."""
    driver.start_broker(broker_id)
    driver.watch()
    for number in range(len(driver.states())):
        driver.leader_writes_isr(number, *sorted(driver.brokers))
    driver.watch()


def without_preferred(partitions: int = 3) -> tuple[Driver, int]:
    """The preferred leader of the first partition leads nothing, though it could."""
    driver = with_topic(partitions)
    away = driver.state(0).leader
    driver.kill_broker(away)
    driver.watch()
    back(driver, away)
    assert driver.state(0).leader != away
    driver.published.clear()
    return driver, away


def leaders(driver: Driver) -> list[int]:
    return [driver.state(number).leader for number in range(len(driver.states()))]


def preferred(driver: Driver) -> list[int]:
    return [driver.state(number).replicas[0] for number in range(len(driver.states()))]


def answer_of(reply: AdminReply) -> LeadersAnswer:
    assert isinstance(reply.answer, LeadersAnswer), reply
    return reply.answer


def codes(answer: LeadersAnswer) -> list[ErrorCode | None]:
    return [result.error.code if result.error else None for result in answer.results]


def elect(driver: Driver, *selectors: PartitionSelector, dry_run: bool = False) -> LeadersAnswer:
    request = ElectPreferredLeaders(0, selectors, dry_run, 5_000, "a1", CALLER)
    return answer_of(driver.ask(request))


def move(driver: Driver, *moves: tuple[int, int], dry_run: bool = False) -> AdminReply:
    named = tuple((TopicPartition("t", number), leader) for number, leader in moves)
    return driver.ask(MoveLeaders(0, named, dry_run, 5_000, "a1", CALLER))


def maintain(driver: Driver, *brokers: int, on: bool = True, dry_run: bool = False) -> AdminReply:
    return driver.ask(SetMaintenance(0, brokers, on, dry_run, 5_000, "a1", CALLER))


def move_later(driver: Driver, request_id: int, chosen: int) -> None:
    """Sends the request while an earlier transaction is in flight."""
    named = ((TopicPartition("t", 0), chosen),)
    driver.feed(MoveLeaders(request_id, named, False, 5_000))


# Preferred leaders.


def test_requested_preferred_replicas_that_are_in_sync_lead_again() -> None:
    driver, away = without_preferred()
    answer = elect(driver)
    assert leaders(driver) == preferred(driver)
    assert [result.leader for result in answer.results] == [away]
    assert codes(answer) == [None]
    (published,) = driver.published_events(Kind.ELECTION, stage=Stage.COMPLETED)
    assert (published.change.cause, published.change.trace_id) == (Cause.PREFERRED_LEADER, "a1")


def test_a_preferred_election_starts_a_new_epoch_with_the_same_isr() -> None:
    driver, _ = without_preferred()
    before = driver.state(0)
    elect(driver)
    after = driver.state(0)
    assert (after.leader_epoch, after.isr) == (before.leader_epoch + 1, before.isr)


def test_only_the_named_partitions_get_their_preferred_leaders() -> None:
    driver, _ = without_preferred(6)
    before = leaders(driver)
    other = next(n for n in range(6) if before[n] == preferred(driver)[n])
    assert elect(driver, PartitionSelector("t", (other,))).results == ()
    assert leaders(driver) == before


def test_a_dry_run_names_the_new_leaders_and_changes_nothing() -> None:
    driver, away = without_preferred()
    before = dict(driver.store.items)
    answer = elect(driver, dry_run=True)
    assert [(r.partition.partition, r.leader) for r in answer.results] == [(0, away)]
    assert driver.store.items == before


def test_a_preferred_replica_out_of_sync_does_not_lead_and_the_reason_is_given() -> None:
    driver = with_topic()
    away = driver.state(0).leader
    driver.kill_broker(away)
    driver.watch()
    driver.start_broker(away)
    driver.watch()
    answer = elect(driver)
    assert codes(answer) == [ErrorCode.NOT_ELIGIBLE_LEADER]
    assert "not in sync" in str(answer.results[0].error)
    assert driver.state(0).leader != away


# Chosen leaders.


def test_a_chosen_leader_leads_and_becomes_the_first_of_the_replicas() -> None:
    driver = with_topic()
    replicas = driver.state(0).replicas
    answer = answer_of(move(driver, (0, replicas[2])))
    state = driver.state(0)
    assert (state.leader, state.replicas) == (replicas[2], (replicas[2], *replicas[:2]))
    assert codes(answer) == [None]
    assert elect(driver).results == ()


def test_the_caller_that_requested_a_leader_is_published_with_the_election() -> None:
    driver, _ = without_preferred()
    elect(driver)
    move(driver, (0, driver.state(0).replicas[1]))
    published = driver.published_events(Kind.ELECTION, stage=Stage.COMPLETED)
    assert [t.change.cause for t in published] == [Cause.PREFERRED_LEADER, Cause.LEADER_MOVED]
    assert {(t.details["requested_by"], t.details["requested_from"]) for t in published} == {CALLER}


def test_a_chosen_current_leader_becomes_the_first_of_the_replicas() -> None:
    driver, away = without_preferred()
    leader = driver.state(0).leader
    move(driver, (0, leader))
    assert driver.state(0).replicas[0] == leader
    assert elect(driver).results == ()
    assert away in driver.state(0).replicas


def test_a_leader_without_a_replica_or_out_of_sync_is_rejected_by_itself() -> None:
    driver = with_topic()
    follower = driver.state(1).replicas[1]
    driver.leader_writes_isr(1, driver.state(1).leader)
    driver.watch()
    good = driver.state(0).replicas[1]
    answer = answer_of(move(driver, (0, good), (1, follower), (2, 9)))
    assert codes(answer) == [
        None,
        ErrorCode.NOT_ELIGIBLE_LEADER,
        ErrorCode.UNKNOWN_BROKER,
    ]


def test_a_leader_that_falls_behind_before_it_leads_is_reported_in_time() -> None:
    driver = with_topic()
    leader, chosen = driver.state(0).replicas[:2]
    driver.hold_transactions = True
    request = MoveLeaders(77, ((TopicPartition("t", 0), chosen),), False, 2_000)
    driver.feed(request)
    driver.leader_writes_isr(0, leader)
    driver.release()
    driver.watch()
    driver.pass_time(2_000)
    assert codes(answer_of(driver.replies[77])) == [ErrorCode.REQUEST_TIMED_OUT]
    # From then on the transfer is not a target any more.
    driver.leader_writes_isr(0, *sorted(driver.brokers))
    driver.watch()
    assert driver.state(0).leader == leader


def transfer_out_of_time(driver: Driver, number: int, chosen: int) -> None:
    """Another writer has changed the partition, and the request times out before the controller can
    try again.
    """
    driver.hold_transactions = True
    driver.feed(MoveLeaders(77, ((TopicPartition("t", number), chosen),), False, 2_000))
    driver.leader_writes_isr(number, *sorted(driver.brokers))
    driver.pass_time(2_000)
    assert codes(answer_of(driver.replies[77])) == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_transfer_that_timed_out_is_completed_later() -> None:
    driver = with_topic()
    chosen = driver.state(0).replicas[1]
    transfer_out_of_time(driver, 0, chosen)
    driver.release()
    driver.watch()
    driver.pass_time(1_000)
    assert driver.state(0).leader == driver.state(0).replicas[0] == chosen
    # Only once: later elections are independent of it.
    driver.kill_broker(chosen)
    driver.watch()
    back(driver, chosen)
    driver.pass_time(1_000)
    assert driver.state(0).leader != chosen


def test_a_transfer_that_timed_out_is_dropped_at_a_new_request() -> None:
    driver = with_topic()
    leader, chosen = driver.state(0).replicas[:2]
    transfer_out_of_time(driver, 0, chosen)
    driver.feed(ElectPreferredLeaders(78, (), False, 5_000))
    driver.release()
    driver.watch()
    driver.pass_time(5_000)
    assert driver.state(0).leader == driver.state(0).replicas[0] == leader


@pytest.mark.rule("last-request-applies")
def test_the_last_request_for_a_leader_applies() -> None:
    driver = with_topic(1)
    leader, second, third = driver.state(0).replicas
    driver.leader_writes_isr(0, leader, second, third)
    driver.watch()
    driver.hold_transactions = True
    move_later(driver, 77, second)
    move_later(driver, 78, third)
    driver.release()
    driver.watch()
    driver.pass_time(5_000)
    assert codes(answer_of(driver.replies[77])) == [ErrorCode.NOT_ELIGIBLE_LEADER]
    assert codes(answer_of(driver.replies[78])) == [None]
    assert driver.state(0).leader == driver.state(0).replicas[0] == third


def test_balancing_does_not_revert_a_chosen_leader() -> None:
    driver, away = without_preferred(1)
    other = next(b for b in driver.state(0).replicas if b not in {away, driver.state(0).leader})
    driver.hold_transactions = True
    driver.feed(ElectPreferredLeaders(77, (), False, 5_000))
    move_later(driver, 78, other)
    driver.release()
    driver.watch()
    driver.pass_time(5_000)
    assert driver.state(0).leader == driver.state(0).replicas[0] == other


@pytest.mark.parametrize(
    ("moves", "code"),
    [
        ((), ErrorCode.INVALID_REQUEST),
        (((0, 1), (0, 2)), ErrorCode.INVALID_REQUEST),
        (((9, 1),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_impossible_leadership_transfers_are_rejected(
    moves: tuple[tuple[int, int], ...], code: ErrorCode
) -> None:
    error = move(with_topic(), *moves).error
    assert error is not None
    assert error.code is code


def test_the_replica_order_of_an_operation_is_not_changed_before_its_end() -> None:
    driver = with_topic()
    leader, second, third = driver.state(0).replicas
    driver.start_broker(4)
    driver.watch()
    targets: list[tuple[int, tuple[int, ...]]] = [(0, (second, third, leader)), (1, (4, 1, 2))]
    wanted = tuple(WantedReplicas(TopicPartition("t", n), target) for n, target in targets)
    driver.begin_operation(Reassignment(wanted), "op")
    assert driver.state(0).replicas == (second, third, leader)
    error = move(driver, (0, leader)).error
    assert error is not None
    assert (error.code, "operation op" in error.message) == (ErrorCode.PARTITION_BUSY, True)


# Automatic balance.


def balanced(threshold_percent: int) -> tuple[Driver, int]:
    driver, away = without_preferred()
    driver.leader_balancing = LeaderBalancing(INTERVAL_MS, threshold_percent)
    driver.take_over()
    return driver, away


def test_leaderships_return_automatically_at_the_interval() -> None:
    driver, away = balanced(10)
    driver.pass_time(INTERVAL_MS - 1)
    assert driver.state(0).leader != away
    driver.pass_time(1)
    assert leaders(driver) == preferred(driver)


def test_below_the_threshold_leaders_stay_where_they_are() -> None:
    driver, away = balanced(100)
    driver.pass_time(3 * INTERVAL_MS)
    assert driver.state(0).leader != away


def test_a_balanced_leader_can_be_replaced_by_request_later() -> None:
    driver, away = balanced(10)
    driver.pass_time(INTERVAL_MS)
    assert driver.state(0).leader == away
    other = driver.state(0).replicas[1]
    move(driver, (0, other))
    assert driver.state(0).leader == other


def test_a_broker_that_regained_its_leaderships_gives_them_up_for_maintenance() -> None:
    driver, away = balanced(10)
    driver.pass_time(INTERVAL_MS)
    assert away in leaders(driver)
    maintain(driver, away)
    assert away not in leaders(driver)


def test_a_broker_in_maintenance_regains_no_leaderships() -> None:
    driver, away = balanced(10)
    maintain(driver, away)
    driver.pass_time(3 * INTERVAL_MS)
    assert away not in leaders(driver)
    maintain(driver, away, on=False)
    driver.pass_time(2 * INTERVAL_MS)
    assert leaders(driver) == preferred(driver)


# Maintenance.


def test_a_broker_in_maintenance_leads_nothing_and_keeps_its_replicas() -> None:
    driver = with_topic()
    broker = driver.state(0).leader
    answer = answer_of(maintain(driver, broker))
    assert broker not in leaders(driver)
    assert all(broker in state.isr_ids for state in driver.states())
    assert (len(answer.results), answer.kept, codes(answer)) == (1, 0, [None])
    (published,) = driver.published_events(Kind.BROKER_MAINTENANCE, stage=Stage.COMPLETED)
    assert (published.broker, published.details["requested_by"]) == (broker, CALLER.name)


def test_a_broker_in_maintenance_leads_where_no_other_can_until_another_can() -> None:
    driver = with_topic(1)
    broker = driver.state(0).leader
    driver.leader_writes_isr(0, broker)
    driver.watch()
    answer = answer_of(maintain(driver, broker))
    assert (answer.results, answer.kept) == ((), 1)
    assert driver.state(0).leader == broker
    driver.leader_writes_isr(0, 1, 2, 3)
    driver.watch()
    assert driver.state(0).leader != broker


@pytest.mark.rule("leadership-returns-above-threshold")
def test_another_controller_keeps_a_broker_in_maintenance_from_leading() -> None:
    driver = with_topic()
    broker = driver.state(0).leader
    maintain(driver, broker)
    driver.take_over()
    for other in {1, 2, 3} - {broker}:
        driver.kill_broker(other)
    driver.watch()
    assert driver.state(0).leader == broker
    for other in {1, 2, 3} - {broker}:
        back(driver, other)
    assert broker not in leaders(driver)


def test_repeated_maintenance_succeeds_and_ends_on_request() -> None:
    driver = with_topic()
    maintain(driver, 1)
    assert maintain(driver, 1).error is None
    assert KEYS.maintenance(1) in driver.store.items
    maintain(driver, 1, on=False)
    assert KEYS.maintenance(1) not in driver.store.items


@pytest.mark.rule("last-request-applies")
def test_maintenance_that_ends_while_a_request_waits_for_it_stays_ended() -> None:
    driver = with_topic(1)
    broker = driver.state(0).leader
    driver.hold_transactions = True
    driver.feed(SetMaintenance(77, (broker,), True, False, 30_000))
    driver.leader_writes_isr(0, broker)
    driver.release()
    driver.watch()
    assert KEYS.maintenance(broker) in driver.store.items
    assert 77 not in driver.replies
    assert maintain(driver, broker, on=False).error is None
    driver.pass_time(30_000)
    assert KEYS.maintenance(broker) not in driver.store.items
    (result,) = answer_of(driver.replies[77]).results
    assert result.error is not None
    assert "taken the broker out of maintenance again" in result.error.message


@pytest.mark.rule("leadership-returns-above-threshold")
def test_a_broker_in_maintenance_gets_no_leaderships_of_failed_brokers_or_new_topics() -> None:
    driver = with_topic(6)
    spared, failed, other = driver.state(0).replicas
    maintain(driver, spared)
    driver.pass_time(5_000)
    driver.create_topic("new", partitions=6)
    led = [state.leader for state in driver.states("new")]
    driver.kill_broker(failed)
    driver.watch()
    assert spared not in led
    assert set(leaders(driver)) == {other}


def test_maintenance_of_a_broker_that_left_can_be_ended() -> None:
    driver = cluster(1, 2, 3, 4)
    driver.create_topic(partitions=4, replication_factor=2)
    assert maintain(driver, 4).error is None
    driver.begin_operation(RemovedBrokers((4,)), "shrink")
    catch_up(driver)
    driver.kill_broker(4)
    driver.watch()
    assert maintain(driver, 4, on=False).error is None
    assert KEYS.maintenance(4) not in driver.store.items
    # A broker that has left and has no mark is unknown.
    error = maintain(driver, 4, on=False).error
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_BROKER


def test_a_dry_run_of_maintenance_names_the_new_leaders_and_changes_nothing() -> None:
    driver = with_topic()
    broker = driver.state(0).leader
    before = dict(driver.store.items)
    answer = answer_of(maintain(driver, broker, dry_run=True))
    assert [result.before for result in answer.results] == [broker]
    assert driver.store.items == before


def test_maintenance_of_an_unknown_broker_is_rejected() -> None:
    error = maintain(with_topic(), 9).error
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_BROKER
