"""Creation and deletion of topics, by request and across takeovers."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Kind, Stage
from tidelog_controller.state.admin_answers import PartitionsAnswer
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import CreateTopic, Loaded
from tidelog_runtime.metadata.operations import BrokerMark, encode_mark
from tidelog_runtime.metadata.schema import decode_topic
from tidelog_runtime.metadata.topic_intents import decode_topic_deletion
from unit.controller.driver import CALLER, KEYS, Driver, cluster


def error_of(reply: AdminReply) -> ErrorCode | None:
    return reply.error.code if reply.error else None


def topic_keys(driver: Driver) -> list[str]:
    prefixes = (KEYS.topics, KEYS.topic_deletions)
    return [key for key in driver.store.items if key.startswith(prefixes)]


# Creation.


def test_the_trace_of_a_request_is_stored_in_its_intent_for_later_controllers() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(trace_id="a1")
    assert decode_topic(driver.store.items[KEYS.topic("t")].value).trace_id == "a1"
    for broker in driver.brokers.values():
        broker.mute = True
    driver.delete_topic(trace_id="b2")
    intent = driver.store.items[KEYS.topic_deletion("t")].value
    assert decode_topic_deletion(intent).trace_id == "b2"


@pytest.mark.rule("clients-retry-unready-leaders")
def test_a_creation_is_acknowledged_when_every_live_replica_has_acknowledged() -> None:
    driver = cluster(1, 2, 3)
    driver.brokers[2].mute = True
    request = driver.create_topic()
    assert request not in driver.replies
    driver.brokers[2].mute = False
    driver.answer(driver.unanswered.pop())
    assert driver.replies[request].error is None


def test_a_topic_has_an_id_of_22_characters() -> None:
    driver = cluster(1)
    request = driver.create_topic(replication_factor=1)
    assert len(driver.replies[request].topic_id) == 22
    assert driver.state().topic_id == driver.replies[request].topic_id


def test_replicas_of_a_new_topic_use_the_registered_racks() -> None:
    driver = Driver()
    for broker_id, rack in enumerate(["a", "a", "a", "b", "b"], start=1):
        driver.start_broker(broker_id, rack=rack)
    driver.load()
    driver.create_topic(partitions=12, replication_factor=2)
    in_a = [sum(b in (1, 2, 3) for b in state.replicas) for state in driver.states()]
    assert in_a == [1] * 12


def test_partitions_of_a_new_topic_are_written_in_batches_after_its_key() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=100)
    sizes = [line for line in driver.transcript if line.startswith("transaction")]
    assert sizes == [
        "transaction of 1 done",
        "transaction of 48 done",
        "transaction of 48 done",
        "transaction of 4 done",
    ]


def test_min_isr_comes_from_the_topics_configuration() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(config={"min_insync_replicas": "3"})
    assert driver.state().min_isr == 3


def test_brokers_that_do_not_acknowledge_in_time_are_named() -> None:
    driver = cluster(1, 2, 3)
    driver.brokers[2].mute = True
    request = driver.create_topic(timeout_ms=2_000)
    driver.pass_time(2_000)
    assert driver.replies[request].error is None
    assert driver.replies[request].pending_brokers == (2,)


def test_a_broker_that_dies_meanwhile_is_named_and_not_waited_for() -> None:
    driver = cluster(1, 2, 3)
    driver.brokers[2].mute = True
    request = driver.create_topic()
    driver.kill_broker(2)
    driver.watch()
    assert driver.replies[request].error is None
    assert driver.replies[request].pending_brokers == (2,)


def test_a_dry_run_creates_nothing() -> None:
    driver = cluster(1)
    request = driver.create_topic(replication_factor=1, dry_run=True)
    assert driver.replies[request].error is None
    assert topic_keys(driver) == []


@pytest.mark.parametrize(
    ("topic", "partitions", "factor", "config", "code"),
    [
        ("a b", 1, 1, {}, ErrorCode.INVALID_TOPIC_NAME),
        ("t", 0, 1, {}, ErrorCode.INVALID_PARTITION_COUNT),
        ("t", 1, 2, {}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", 1, 1, {"retention": "1"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_an_invalid_creation_is_rejected_and_leaves_nothing(
    topic: str, partitions: int, factor: int, config: dict[str, str], code: ErrorCode
) -> None:
    driver = cluster(1)
    request = driver.create_topic(topic, partitions, factor, config)
    assert error_of(driver.replies[request]) is code
    assert topic_keys(driver) == []


def test_a_stopping_broker_gets_no_new_replica() -> None:
    driver = cluster(1)
    driver.start_broker(2, state="stopping")
    driver.watch()
    request = driver.create_topic(replication_factor=2)
    assert error_of(driver.replies[request]) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_name_in_use_is_rejected() -> None:
    driver = cluster(1)
    driver.create_topic(replication_factor=1)
    request = driver.create_topic(replication_factor=1)
    assert error_of(driver.replies[request]) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_name_that_is_being_created_is_rejected() -> None:
    driver = cluster(1)
    driver.hold_transactions = True
    driver.create_topic(replication_factor=1)
    request = driver.create_topic(replication_factor=1)
    assert error_of(driver.replies[request]) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_name_that_is_being_deleted_is_rejected() -> None:
    driver = cluster(1)
    driver.create_topic(replication_factor=1)
    driver.brokers[1].mute = True
    driver.delete_topic()
    request = driver.create_topic(replication_factor=1)
    assert error_of(driver.replies[request]) is ErrorCode.TOPIC_BEING_DELETED


def test_a_creation_without_an_answer_from_the_store_is_retried() -> None:
    driver = cluster(1)
    driver.unanswered_transactions = 1
    request = driver.create_topic(replication_factor=1)
    assert driver.replies[request].error is None


def test_a_creation_that_was_applied_without_an_answer_is_recognised() -> None:
    driver = cluster(1)
    driver.unanswered_transactions, driver.apply_unanswered = 1, True
    request = driver.create_topic(replication_factor=1)
    assert driver.replies[request].topic_id == driver.state().topic_id


def test_a_creation_that_the_store_never_answers_ends_at_its_timeout() -> None:
    driver = cluster(1)
    driver.hold_transactions = True
    request = driver.create_topic(replication_factor=1, timeout_ms=2_000)
    driver.pass_time(2_000)
    assert error_of(driver.replies[request]) is ErrorCode.REQUEST_TIMED_OUT


def test_a_request_waits_until_the_metadata_is_loaded() -> None:
    driver = Driver()
    driver.start_broker(1)
    driver.store.unseen.clear()
    driver.feed(CreateTopic(9, "t", 1, 1, {}, False, 5_000))
    assert driver.replies == {}
    driver.feed(Loaded(driver.store.snapshot()))
    assert driver.replies[9].error is None


@pytest.mark.rule("new-controller-continues-elections")
def test_a_takeover_during_a_creation_completes_it() -> None:
    driver = cluster(1, 2, 3)
    created: list[int] = []

    def stop_after_two(_: object) -> None:
        created.append(1)
        driver.hold_transactions = len(created) >= 2

    driver.before_transaction = stop_after_two
    driver.create_topic(partitions=300)
    assert 0 < len(driver.states()) < 300
    driver.before_transaction = None
    driver.take_over()
    assert len(driver.states()) == 300
    assert all(len(set(state.replicas)) == 3 for state in driver.states())


def test_a_creation_waits_for_brokers_that_left_meanwhile() -> None:
    driver = cluster(1, 2)
    driver.hold_transactions = True
    request = driver.create_topic(partitions=1, replication_factor=2, timeout_ms=2_000)
    driver.kill_broker(2)
    driver.watch()
    driver.release()
    assert driver.states() == []
    driver.pass_time(2_000)
    assert error_of(driver.replies[request]) is ErrorCode.REQUEST_TIMED_OUT
    driver.start_broker(3)
    driver.watch()
    assert len(driver.states()) == 1


def test_a_topic_gets_the_chosen_replicas() -> None:
    driver = cluster(1, 2, 3)
    request = driver.create_topic(
        partitions=0, replication_factor=0, assignment=((3, 1), (2, 3), (1, 2))
    )
    assert driver.replies[request].error is None
    assert [state.replicas for state in driver.states()] == [(3, 1), (2, 3), (1, 2)]
    assert KEYS.partition_addition("t") not in driver.store.items


def test_a_chosen_broker_removed_before_it_got_its_replica_gets_none() -> None:
    driver = cluster(1, 2, 3)
    driver.hold_transactions = True
    driver.create_topic(partitions=1, replication_factor=1, assignment=((3,),))
    driver.store.put(KEYS.broker_removal(3), encode_mark(BrokerMark()))
    driver.watch()
    driver.release()
    assert driver.state().replicas in ((1,), (2,))


def test_a_dry_run_of_a_creation_returns_replicas_that_can_be_requested() -> None:
    driver = cluster(1, 2, 3)
    answer = driver.replies[driver.create_topic(dry_run=True)].answer
    assert isinstance(answer, PartitionsAnswer)
    driver.create_topic(assignment=answer.assignment)
    assert answer.assignment == tuple(state.replicas for state in driver.states())


@pytest.mark.parametrize(
    ("partitions", "factor", "assignment"),
    [
        (2, 0, ((1, 2),)),
        (1, 3, ((1, 2),)),
        (0, 0, ((1, 2), (1,))),
        (0, 0, ((1, 1),)),
    ],
)
def test_contradictory_chosen_replicas_are_rejected(
    partitions: int, factor: int, assignment: tuple[tuple[int, ...], ...]
) -> None:
    driver = cluster(1, 2, 3)
    request = driver.create_topic("t", partitions, factor, assignment=assignment)
    assert error_of(driver.replies[request]) is ErrorCode.INVALID_ASSIGNMENT
    assert topic_keys(driver) == []


def test_a_creation_repeated_with_its_id_is_the_same_creation() -> None:
    driver = cluster(1, 2, 3)
    first = driver.create_topic(operation_id="op-1")
    second = driver.create_topic(operation_id="op-1")
    assert driver.replies[second].error is None
    assert driver.replies[second].topic_id == driver.replies[first].topic_id
    other = driver.create_topic(operation_id="op-2")
    assert error_of(driver.replies[other]) is ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("other", [{"partitions": 7}, {"config": {"segment_ms": "5000"}}])
def test_a_different_creation_with_the_same_id_is_rejected(other: dict[str, Any]) -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(operation_id="op-1")
    request = driver.create_topic(operation_id="op-1", **other)
    assert error_of(driver.replies[request]) is ErrorCode.OPERATION_ID_IN_USE


def test_a_repeated_creation_succeeds_whatever_has_become_of_its_topic() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(operation_id="op")
    driver.take_over()
    driver.add_partitions(4)
    driver.alter_config({"retention_ms": "60000"})
    assert error_of(driver.replies[driver.create_topic(operation_id="op")]) is None
    other = driver.create_topic(partitions=5, operation_id="op")
    assert error_of(driver.replies[other]) is ErrorCode.OPERATION_ID_IN_USE


def test_a_creation_in_progress_is_joined_by_its_id_also_at_the_next_controller() -> None:
    driver = cluster(1, 2, 3)
    driver.brokers[2].mute = True
    first = driver.create_topic(operation_id="op-1")
    driver.take_over()
    second = driver.create_topic(operation_id="op-1", timeout_ms=60_000)
    assert first not in driver.replies
    driver.brokers[2].mute = False
    driver.pass_time(1_000)
    for command in list(driver.unanswered):
        driver.answer(command)
    assert driver.replies[second].topic_id == driver.state().topic_id


def test_an_invalid_operation_id_is_rejected() -> None:
    driver = cluster(1, 2, 3)
    request = driver.create_topic(operation_id="a b")
    assert error_of(driver.replies[request]) is ErrorCode.INVALID_REQUEST


def test_the_caller_is_published_with_a_creation_and_a_deletion() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(config={"retention_ms": "60000"})
    (published,) = driver.published_events(Kind.TOPIC_CREATION, stage=Stage.REQUESTED)
    assert (published.details["requested_by"], published.details["requested_from"]) == CALLER
    assert published.details["config"] == ["retention_ms=60000"]


# Deletion.


def with_topic(*, partitions: int = 2) -> Driver:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=partitions)
    driver.transcript.clear()
    driver.sent.clear()
    return driver


@pytest.mark.rule("deleted-topic-stops-replicas")
def test_a_deletion_stops_then_deletes_then_removes_the_topic() -> None:
    driver = with_topic()
    request = driver.delete_topic()
    assert driver.transcript == [
        "transaction of 1 done",
        "transaction of 2 done",
        "broker 1 stop t/0 t/1",
        "broker 2 stop t/0 t/1",
        "broker 3 stop t/0 t/1",
        "transaction of 2 done",
        "transaction of 2 done",
    ]
    assert driver.replies[request].error is None
    assert topic_keys(driver) == []


@pytest.mark.rule("deleted-topic-stops-replicas")
def test_keys_stay_until_every_live_replica_has_acknowledged_the_stop() -> None:
    driver = with_topic()
    driver.brokers[3].mute = True
    driver.delete_topic()
    assert len(driver.states()) == 2
    driver.answer(driver.unanswered.pop())
    assert topic_keys(driver) == []


def test_brokers_that_do_not_delete_in_time_are_named() -> None:
    driver = with_topic()
    driver.brokers[3].mute = True
    request = driver.delete_topic(timeout_ms=2_000)
    driver.pass_time(2_000)
    assert driver.replies[request] == AdminReply(
        None, driver.state().topic_id, pending_brokers=(3,)
    )


def test_a_broker_that_rejects_a_deletion_is_asked_again() -> None:
    driver = with_topic()
    full = TidelogError(ErrorCode.STORAGE_ERROR, "the disk fails")
    driver.brokers[3].refuse = lambda partition: full if partition.partition == 0 else None
    driver.delete_topic()
    assert [state.leader for state in driver.states()] == [-1]
    driver.brokers[3].refuse = lambda _: None
    driver.pass_time(1_000)
    assert topic_keys(driver) == []


@pytest.mark.rule("returning-broker-drops-replicas")
def test_an_absent_broker_does_not_delay_a_deletion() -> None:
    driver = with_topic()
    driver.kill_broker(3)
    driver.watch()
    driver.delete_topic()
    assert topic_keys(driver) == []
    driver.start_broker(3)
    driver.watch()
    assert driver.transcript[-1] == "broker 3 full state"


def test_a_broker_that_returns_during_a_deletion_is_sent_the_stop() -> None:
    driver = with_topic()
    driver.brokers[1].mute = True
    driver.delete_topic()
    driver.start_broker(3)
    driver.watch()
    commands = [line for line in driver.transcript if line.startswith("broker 3")]
    assert commands[-2:] == ["broker 3 full state", "broker 3 stop t/0 t/1"]


def test_a_topic_that_is_being_deleted_elects_no_leaders() -> None:
    driver = with_topic()
    driver.brokers[1].mute = True
    driver.delete_topic()
    before = driver.store.snapshot().items
    driver.kill_broker(3)
    driver.watch()
    assert all(state.leader == -1 for state in driver.states())
    after = driver.store.snapshot().items
    assert [key for key in after if after[key] != before.get(key)] == [KEYS.departure(3)]


def test_an_isr_change_during_a_deletion_is_overwritten() -> None:
    driver = with_topic(partitions=1)

    def leader_is_faster(_: object) -> None:
        driver.before_transaction = lambda _: None
        driver.leader_writes_isr(0, 1, 2)

    driver.hold_transactions = True
    driver.delete_topic()
    driver.release()
    driver.before_transaction = leader_is_faster
    driver.watch()
    assert topic_keys(driver) == []


def test_the_deletion_of_an_unknown_topic_is_rejected() -> None:
    driver = cluster(1)
    request = driver.delete_topic("nope")
    assert error_of(driver.replies[request]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_of_another_id_is_not_deleted() -> None:
    driver = with_topic()
    request = driver.delete_topic(topic_id="former")
    assert error_of(driver.replies[request]) is ErrorCode.UNKNOWN_TOPIC_ID
    assert len(driver.states()) == 2


def test_a_topic_changed_before_its_deletion_begins_is_not_deleted() -> None:
    driver = with_topic()
    read = driver.store.items[KEYS.topic("t")].mod_revision
    driver.hold_transactions = True
    driver.alter_config({"segment_ms": "5000"})
    in_between = driver.delete_topic(expected_revision=read)
    driver.release()
    late = driver.delete_topic(expected_revision=read)
    for request in (in_between, late):
        assert error_of(driver.replies[request]) is ErrorCode.REVISION_CONFLICT
    assert KEYS.topic_deletion("t") not in driver.store.items
    now = driver.store.items[KEYS.topic("t")].mod_revision
    assert driver.replies[driver.delete_topic(expected_revision=now)].error is None


def test_a_second_deletion_waits_for_the_same_end() -> None:
    driver = with_topic()
    driver.brokers[3].mute = True
    first, second = driver.delete_topic(), driver.delete_topic()
    driver.answer(driver.unanswered.pop())
    assert driver.replies[first].error is None
    assert driver.replies[second].error is None


def test_a_topic_can_be_created_again_under_its_name() -> None:
    driver = with_topic()
    previous = driver.state().topic_id
    driver.delete_topic()
    request = driver.create_topic()
    assert driver.replies[request].error is None
    assert driver.state().topic_id != previous


def test_a_leftover_key_of_a_previous_topic_is_overwritten_by_its_successor() -> None:
    driver = with_topic(partitions=1)
    key = KEYS.leader_and_isr(TopicPartition("t", 0))
    leftover = driver.store.items[key].value
    driver.delete_topic()
    driver.store.put(key, leftover)
    driver.watch()
    request = driver.create_topic(partitions=1)
    assert driver.replies[request].topic_id == driver.state().topic_id
    assert driver.state().leader_epoch == 0


@pytest.mark.parametrize("muted", [(1,), (1, 2, 3)])
def test_a_takeover_during_a_deletion_completes_it(muted: tuple[int, ...]) -> None:
    driver = with_topic()
    for broker_id in muted:
        driver.brokers[broker_id].mute = True
    driver.delete_topic()
    assert len(driver.states()) == 2
    for broker in driver.brokers.values():
        broker.mute = False
    driver.take_over()
    assert topic_keys(driver) == []


def test_a_takeover_right_after_the_intent_completes_the_deletion() -> None:
    driver = with_topic()
    intents: list[object] = []

    def only_the_intent(_: object) -> None:
        intents.append(1)
        driver.hold_transactions = True

    driver.before_transaction = only_the_intent
    driver.delete_topic()
    driver.before_transaction = None
    assert all(state.leader != -1 for state in driver.states())
    driver.take_over()
    assert topic_keys(driver) == []


def test_a_takeover_after_the_partition_keys_are_deleted_removes_the_topic() -> None:
    driver = with_topic()

    def all_but_the_last(transaction: object) -> None:
        driver.hold_transactions = "Delete" in repr(transaction)

    driver.before_transaction = all_but_the_last
    driver.delete_topic()
    driver.before_transaction = None
    assert driver.states() == []
    assert len(topic_keys(driver)) == 2
    driver.take_over()
    assert topic_keys(driver) == []
