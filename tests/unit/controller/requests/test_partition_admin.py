"""Partitions added to a topic and removed from it, by request and across takeovers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_controller.state.admin_answers import PartitionsAnswer
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.schema import decode_topic, encode, encode_leader_and_isr
from unit.controller.driver import CALLER, KEYS, Driver, cluster

ADDITION = KEYS.partition_addition("t")
REMOVAL = KEYS.partition_removal("t")


def with_topic(partitions: int = 3, *, brokers: int = 3, factor: int = 3) -> Driver:
    driver = cluster(*range(1, brokers + 1))
    driver.create_topic(partitions=partitions, replication_factor=factor)
    driver.transcript.clear()
    driver.sent.clear()
    driver.published.clear()
    return driver


def code_of(driver: Driver, request: int) -> ErrorCode | None:
    error = driver.replies[request].error
    return error.code if error else None


def answer_of(driver: Driver, request: int) -> PartitionsAnswer:
    answer = driver.replies[request].answer
    assert isinstance(answer, PartitionsAnswer)
    return answer


def count(driver: Driver) -> int:
    return decode_topic(driver.store.items[KEYS.topic("t")].value).partitions


def stages(driver: Driver, kind: Kind) -> list[Stage]:
    return [published.stage for published in driver.published_events(kind)]


def stop_after(driver: Driver, transactions: int) -> None:
    """The store takes no more than this number of transactions from now on."""
    left = [transactions]

    def held(_: object) -> None:
        left[0] -= 1
        driver.hold_transactions = left[0] <= 0

    driver.before_transaction = held


# Added partitions.


@pytest.mark.rule("partitions-added-and-removed")
def test_added_partitions_get_replicas_and_leaders() -> None:
    driver = with_topic()
    request = driver.add_partitions(5)
    assert code_of(driver, request) is None
    assert answer_of(driver, request).partitions == 2
    assert [state.leader != NO_LEADER for state in driver.states()] == [True] * 5
    assert count(driver) == 5
    assert ADDITION not in driver.store.items


def test_an_addition_is_acknowledged_when_every_live_replica_has_acknowledged() -> None:
    driver = with_topic()
    driver.brokers[2].mute = True
    request = driver.add_partitions(4)
    assert request not in driver.replies
    assert ADDITION in driver.store.items
    driver.brokers[2].mute = False
    driver.answer(driver.unanswered.pop())
    assert driver.replies[request].pending_brokers == ()
    assert ADDITION not in driver.store.items


def test_brokers_that_do_not_start_added_partitions_in_time_are_named() -> None:
    driver = with_topic()
    driver.brokers[2].mute = True
    request = driver.add_partitions(4, timeout_ms=2_000)
    driver.pass_time(2_000)
    assert code_of(driver, request) is None
    assert driver.replies[request].pending_brokers == (2,)


def test_an_addition_is_acknowledged_when_another_change_can_follow() -> None:
    driver = with_topic()
    stop_after(driver, 2)  # The topic, and the partitions' first states.
    request = driver.add_partitions(5, timeout_ms=2_000)
    assert len(driver.states()) == 5
    assert ADDITION in driver.store.items
    assert request not in driver.replies
    driver.before_transaction = None
    driver.release()
    assert answer_of(driver, request).partitions == 2
    assert code_of(driver, driver.remove_partitions(3, dry_run=True)) is None


def test_a_creation_with_chosen_replicas_is_acknowledged_when_partitions_can_be_added() -> None:
    driver = cluster(1, 2, 3)
    stop_after(driver, 2)
    request = driver.create_topic(partitions=2, replication_factor=2, assignment=((3, 1), (2, 3)))
    assert [state.replicas for state in driver.states()] == [(3, 1), (2, 3)]
    assert request not in driver.replies
    driver.before_transaction = None
    driver.release()
    assert code_of(driver, request) is None
    assert code_of(driver, driver.add_partitions(3, dry_run=True)) is None


def test_an_addition_succeeds_at_its_timeout_if_only_its_intent_is_left() -> None:
    driver = with_topic()
    stop_after(driver, 2)
    request = driver.add_partitions(5, timeout_ms=2_000)
    driver.pass_time(2_000)
    assert code_of(driver, request) is None
    assert answer_of(driver, request).partitions == 2


def test_added_partitions_get_the_chosen_replicas() -> None:
    driver = with_topic(2, factor=2)
    driver.add_partitions(4, assignment=((3, 1), (2, 3)))
    assert [state.replicas for state in driver.states()[2:]] == [(3, 1), (2, 3)]


@pytest.mark.rule("new-controller-continues-reassignments")
def test_chosen_replicas_are_kept_for_the_next_controller() -> None:
    driver = with_topic(2, factor=2)
    stop_after(driver, 1)
    driver.add_partitions(4, assignment=((3, 1), (2, 3)))
    assert len(driver.states()) == 2
    driver.before_transaction = None
    driver.take_over()
    assert [state.replicas for state in driver.states()[2:]] == [(3, 1), (2, 3)]
    assert ADDITION not in driver.store.items


def test_a_dry_run_of_an_addition_returns_the_replicas_and_changes_nothing() -> None:
    driver = with_topic(2, factor=2)
    before = dict(driver.store.items)
    plan = answer_of(driver, driver.add_partitions(5, dry_run=True))
    assert driver.store.items == before
    driver.add_partitions(5)
    assert plan.assignment == tuple(state.replicas for state in driver.states()[2:])


def test_an_addition_to_the_current_number_of_partitions_succeeds() -> None:
    driver = with_topic()
    assert answer_of(driver, driver.add_partitions(3)).partitions == 0
    assert answer_of(driver, driver.remove_partitions(3)).partitions == 0


def test_an_addition_that_was_applied_without_an_answer_is_recognised() -> None:
    driver = with_topic()
    driver.unanswered_transactions, driver.apply_unanswered = 1, True
    request = driver.add_partitions(5)
    assert answer_of(driver, request).partitions == 2


def test_an_addition_is_published_with_its_caller_up_to_the_last_acknowledgement() -> None:
    driver = with_topic()
    driver.add_partitions(5, trace_id="a1")
    published = driver.published_events(Kind.PARTITIONS_ADDITION)
    assert [t.stage for t in published] == [Stage.REQUESTED, Stage.COMPLETED, Stage.ACKNOWLEDGED]
    assert published[0].details == {
        "first": 3,
        "partitions": 5,
        "requested_by": CALLER.name,
        "requested_from": CALLER.address,
    }
    created = driver.published_events(Kind.CREATE, stage=Stage.COMPLETED)
    assert {(t.change.cause, t.change.trace_id) for t in created} == {
        (Cause.PARTITIONS_ADDED, "a1")
    }


@pytest.mark.parametrize(
    ("partitions", "assignment", "code"),
    [
        (2, (), ErrorCode.INVALID_PARTITION_COUNT),
        (100_001, (), ErrorCode.INVALID_PARTITION_COUNT),
        (4, ((1, 1, 2),), ErrorCode.INVALID_ASSIGNMENT),
        (4, ((1, 2),), ErrorCode.INVALID_ASSIGNMENT),
        (5, ((1, 2, 3),), ErrorCode.INVALID_ASSIGNMENT),
        (4, ((1, 2, 9),), ErrorCode.UNKNOWN_BROKER),
    ],
)
def test_an_invalid_addition_is_rejected_and_changes_nothing(
    partitions: int, assignment: tuple[tuple[int, ...], ...], code: ErrorCode
) -> None:
    driver = with_topic()
    before = dict(driver.store.items)
    assert code_of(driver, driver.add_partitions(partitions, assignment=assignment)) is code
    assert driver.store.items == before


def test_an_addition_to_an_unknown_topic_is_rejected() -> None:
    driver = cluster(1)
    request = driver.add_partitions(4)
    assert code_of(driver, request) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_addition_without_enough_brokers_is_rejected() -> None:
    driver = with_topic()
    driver.kill_broker(3)
    driver.watch()
    request = driver.add_partitions(4)
    assert code_of(driver, request) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_an_older_revision_of_the_topic_is_rejected() -> None:
    driver = with_topic()
    revision = driver.store.items[KEYS.topic("t")].mod_revision
    driver.add_partitions(4, expected_revision=revision)
    assert count(driver) == 4
    request = driver.add_partitions(5, expected_revision=revision)
    assert code_of(driver, request) is ErrorCode.REVISION_CONFLICT
    assert count(driver) == 4


def test_partitions_of_internal_topics_cannot_be_changed() -> None:
    driver = cluster(1)
    request = driver.add_partitions(4, topic="__state_changes")
    assert code_of(driver, request) is not None


# Removed partitions.


@pytest.mark.rule("partitions-added-and-removed")
def test_removed_partitions_are_stopped_then_deleted_and_the_others_stay() -> None:
    driver = with_topic(4)
    kept = driver.states()[:2]
    request = driver.remove_partitions(2)
    assert driver.transcript == [
        "transaction of 2 done",
        "transaction of 2 done",
        "broker 1 stop t/2 t/3",
        "broker 2 stop t/2 t/3",
        "broker 3 stop t/2 t/3",
        "transaction of 2 done",
        "transaction of 1 done",
    ]
    assert code_of(driver, request) is None
    assert answer_of(driver, request).partitions == 2
    assert driver.states() == kept
    assert REMOVAL not in driver.store.items


def test_clients_see_fewer_partitions_before_any_of_them_stops() -> None:
    driver = with_topic(4)
    stop_after(driver, 1)
    driver.remove_partitions(2)
    assert count(driver) == 2
    assert [state.leader != NO_LEADER for state in driver.states()] == [True] * 4


@pytest.mark.rule("new-controller-continues-reassignments")
def test_a_takeover_during_a_removal_completes_it() -> None:
    for transactions in (1, 2, 3):
        driver = with_topic(4)
        stop_after(driver, transactions)
        driver.remove_partitions(2)
        driver.before_transaction = None
        driver.take_over()
        assert len(driver.states()) == 2
        assert REMOVAL not in driver.store.items


def test_keys_of_removed_partitions_stay_until_every_live_replica_has_stopped() -> None:
    driver = with_topic(4)
    driver.brokers[3].mute = True
    request = driver.remove_partitions(2, timeout_ms=2_000)
    assert len(driver.states()) == 4
    driver.pass_time(2_000)
    assert driver.replies[request].pending_brokers == (3,)
    driver.brokers[3].mute = False
    driver.answer(driver.unanswered.pop())
    assert len(driver.states()) == 2


def test_a_removal_does_not_wait_for_absent_brokers() -> None:
    driver = with_topic(4)
    driver.kill_broker(3)
    driver.watch()
    driver.remove_partitions(2)
    assert len(driver.states()) == 2


def test_a_removed_partition_elects_no_leader() -> None:
    driver = with_topic(4)
    driver.hold_transactions = True
    driver.remove_partitions(3)
    driver.release()
    driver.kill_broker(driver.state(0).leader)
    driver.watch()
    assert len(driver.states()) == 3
    assert [published.name for published in driver.published_events(Kind.ELECTION)].count(
        TopicPartition("t", 3)
    ) == 0


def test_the_deletion_of_a_topic_includes_a_pending_removal() -> None:
    driver = with_topic(4)
    driver.brokers[3].mute = True
    driver.remove_partitions(2)
    driver.delete_topic()
    driver.brokers[3].mute = False
    while driver.unanswered:
        driver.answer(driver.unanswered.pop())
    driver.pass_time(60_000)
    prefixes = (KEYS.topics, KEYS.topic_deletions, KEYS.partition_removals)
    assert [key for key in driver.store.items if key.startswith(prefixes)] == []


def test_no_partition_is_added_while_others_are_being_removed() -> None:
    driver = with_topic(4)
    driver.brokers[3].mute = True
    driver.remove_partitions(2)
    request = driver.add_partitions(4)
    assert code_of(driver, request) is ErrorCode.PARTITION_BUSY


@pytest.mark.rule("partitions-added-and-removed")
def test_a_readded_partition_waits_until_returned_brokers_have_dropped_the_previous_one() -> None:
    """A broker that was away holds a replica of a partition with this topic id and number. Its full
    state does not name the replica, and so makes it a stray. A command that assigned the new
    replica before that would make the broker lead or follow with the old records.
    """
    driver = with_topic(3)
    driver.kill_broker(3)
    driver.watch()
    driver.remove_partitions(2)
    driver.hold_transactions = True
    driver.start_broker(3).mute = True
    driver.watch()
    driver.release()
    request = driver.add_partitions(3, timeout_ms=60_000)
    assert len(driver.states()) == 2
    driver.brokers[3].mute = False
    driver.answer(driver.unanswered.pop())
    assert len(driver.states()) == 3
    assert code_of(driver, request) is None


def test_a_chosen_broker_that_may_still_hold_a_removed_partition_does_not_get_it_again() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=2, replication_factor=1, assignment=((1,), (3,)))
    driver.kill_broker(3)
    driver.watch()
    driver.remove_partitions(1)
    driver.start_broker(3).mute = True  # it has yet to set aside its old replica
    driver.watch()
    driver.add_partitions(2, assignment=((3,),))
    assert len(driver.states()) == 1
    driver.kill_broker(3)
    driver.watch()
    assert driver.state(1).replicas in ((1,), (2,))


def newest_epoch(driver: Driver, partition: int) -> int:
    """Raises the epoch by elections: the leader restarts repeatedly."""
    for _ in range(3):
        leader = driver.state(partition).leader
        driver.kill_broker(leader)
        driver.watch()
        driver.start_broker(leader)
        driver.watch()
    return driver.state(partition).leader_epoch


def epochs_added(driver: Driver, partitions: int) -> list[int]:
    before = len(driver.states())
    driver.add_partitions(partitions)
    return [state.leader_epoch for state in driver.states()[before:]]


def test_added_partitions_begin_beyond_the_epochs_in_which_removed_ones_were_stopped() -> None:
    driver = with_topic(4)
    newest = newest_epoch(driver, 3)
    driver.remove_partitions(2)
    assert epochs_added(driver, 5) == [newest + 2] * 3


def test_each_recreation_of_a_partition_begins_beyond_its_previous_epochs() -> None:
    driver = with_topic(2)
    for life in range(1, 4):
        driver.remove_partitions(1)
        assert epochs_added(driver, 2) == [2 * life]


def test_added_partitions_of_a_topic_that_never_lost_any_begin_in_epoch_0() -> None:
    driver = with_topic(2)
    newest_epoch(driver, 1)
    assert epochs_added(driver, 3) == [0]


def resigns(driver: Driver, partition: int) -> None:
    """A follower that has lost data resigns, and its leader gets a new epoch."""
    state = driver.state(partition)
    follower = next(b for b in state.replicas if b != state.leader)
    key = KEYS.leader_and_isr(TopicPartition("t", partition))
    driver.store.put(key, encode_leader_and_isr(state.resigned(follower)))


@pytest.mark.rule("partitions-added-and-removed")
@pytest.mark.parametrize("taken_over", [False, True])
def test_an_epoch_that_grows_after_the_removal_was_written_counts_too(
    taken_over: bool,
) -> None:
    driver = with_topic(2)
    stop_after(driver, 1)
    driver.remove_partitions(1)
    for _ in range(3):
        resigns(driver, 1)
    newest = driver.state(1).leader_epoch
    driver.before_transaction = None
    if taken_over:
        driver.take_over()
    else:
        driver.watch()
        driver.release()
    assert len(driver.states()) == 1
    assert REMOVAL not in driver.store.items
    assert epochs_added(driver, 2) == [newest + 2]


def test_a_removal_begun_without_recorded_epochs_is_completed_with_them() -> None:
    driver = with_topic(2)
    newest = newest_epoch(driver, 1)
    stop_after(driver, 1)
    driver.remove_partitions(1)
    entry = decode_topic(driver.store.items[KEYS.topic("t")].value)
    driver.store.put(KEYS.topic("t"), encode(replace(entry, first_leader_epoch=0)))
    driver.before_transaction = None
    driver.take_over()
    assert len(driver.states()) == 1
    assert epochs_added(driver, 2) == [newest + 2]


def test_a_waiting_removal_does_not_make_other_events_read_all_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = with_topic(20)
    driver.brokers[2].mute = True
    driver.remove_partitions(1, timeout_ms=1)
    driver.pass_time(1)
    looks: list[str] = []

    def looked_at(_: Context, topic: str) -> list[TopicPartition]:
        looks.append(topic)
        return []

    monkeypatch.setattr(Context, "partitions_of", looked_at)
    driver.pass_time(10)
    assert REMOVAL in driver.store.items
    assert looks == []
    monkeypatch.undo()
    driver.brokers[2].mute = False
    driver.take_over()
    assert REMOVAL not in driver.store.items


@pytest.mark.parametrize("key", [KEYS.topic("t"), KEYS.topic_deletion("t")])
def test_a_key_with_the_newest_epoch_stays_while_its_topic_cannot_be_written(key: str) -> None:
    driver = with_topic(2)
    stop_after(driver, 1)
    driver.remove_partitions(1)
    before = driver.store.items.get(key)
    driver.store.put(key, b"{")
    for _ in range(3):
        resigns(driver, 1)
    newest = driver.state(1).leader_epoch
    driver.before_transaction = None
    driver.watch()
    driver.release()
    assert driver.state(1).leader_epoch == newest + 1
    if before is None:
        driver.store.delete(key)
    else:
        driver.store.put(key, before.value)
    driver.watch()
    assert len(driver.states()) == 1
    assert epochs_added(driver, 2) == [newest + 2]


def test_a_removal_has_to_name_the_topic_twice() -> None:
    driver = with_topic(4)
    for said in ("", "T"):
        request = driver.remove_partitions(2, confirm_topic=said)
        assert code_of(driver, request) is ErrorCode.NOT_CONFIRMED
    assert len(driver.states()) == 4


def test_a_dry_run_of_a_removal_lists_the_replicas_and_needs_no_confirmation() -> None:
    driver = with_topic(4)
    before = dict(driver.store.items)
    plan = answer_of(driver, driver.remove_partitions(2, dry_run=True, confirm_topic=""))
    assert (plan.partitions, plan.brokers) == (2, (1, 2, 3))
    assert driver.store.items == before


@pytest.mark.parametrize("partitions", [0, -1, 5])
def test_a_removal_that_leaves_none_or_more_is_rejected(partitions: int) -> None:
    driver = with_topic(4)
    request = driver.remove_partitions(partitions)
    assert code_of(driver, request) is ErrorCode.INVALID_PARTITION_COUNT


def test_a_removal_is_published_with_its_caller_until_all_is_gone() -> None:
    driver = with_topic(4)
    driver.brokers[3].mute = True
    driver.remove_partitions(2, trace_id="b2")
    assert stages(driver, Kind.PARTITIONS_REMOVAL) == [Stage.REQUESTED]
    driver.brokers[3].mute = False
    driver.answer(driver.unanswered.pop())
    assert stages(driver, Kind.PARTITIONS_REMOVAL) == [Stage.REQUESTED, Stage.COMPLETED]
    assert (
        driver.published_events(Kind.PARTITIONS_REMOVAL)[0].details["requested_by"] == CALLER.name
    )
    deleted = driver.published_events(Kind.DELETE, stage=Stage.COMPLETED)
    assert {(t.change.cause, t.change.trace_id) for t in deleted if t.broker < 0} == {
        (Cause.PARTITIONS_REMOVED, "b2")
    }


def test_the_controller_that_completes_a_removal_publishes_its_end() -> None:
    driver = with_topic(4)
    stop_after(driver, 1)
    driver.remove_partitions(2, trace_id="b2")
    driver.before_transaction = None
    driver.published.clear()
    driver.take_over()
    (published,) = driver.published_events(Kind.PARTITIONS_REMOVAL)
    assert (published.stage, published.change.trace_id) == (Stage.COMPLETED, "b2")


def test_an_intent_without_its_topic_is_deleted() -> None:
    driver = with_topic(4)
    stop_after(driver, 1)
    driver.remove_partitions(2)
    driver.before_transaction = None
    for key in [k for k in driver.store.items if k.startswith(KEYS.topic("t"))]:
        driver.store.delete(key)
    driver.take_over()
    assert REMOVAL not in driver.store.items
