"""The whole core: events around the controller, and all that the controller sends."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Kind, Stage
from tidelog_controller.control.command_dispatcher import LEADER_FIRST_MS, MANY_ELECTIONS
from tidelog_controller.state.commands import ReadKeys
from tidelog_controller.state.events import (
    CommandAnswered,
    ConnectionEnded,
    DialOutcome,
    OutcomeUnknown,
)
from tidelog_runtime.metadata.schema import LeaderAndIsr
from tidelog_runtime.metadata.store import CreateRevision, Transaction
from tidelog_runtime.replica_control import (
    CommandResult,
    LeaderAndIsrCommand,
    StopReplicaCommand,
)
from unit.controller.driver import KEYS, Driver, cluster


def with_topic(
    partitions: int = 6, brokers: tuple[int, ...] = (1, 2, 3), factor: int = 3
) -> Driver:
    driver = cluster(*brokers)
    driver.create_topic(partitions=partitions, replication_factor=factor)
    driver.transcript.clear()
    driver.sent.clear()
    driver.transactions.clear()
    return driver


def epochs(driver: Driver) -> list[int]:
    return [state.leader_epoch for state in driver.states()]


def in_sync(state: LeaderAndIsr) -> list[int]:
    return sorted(state.isr_ids)


@pytest.mark.rule("new-controller-sends-full-states")
def test_a_new_controller_sends_every_broker_its_full_state() -> None:
    driver = with_topic(partitions=2)
    driver.take_over()
    assert driver.transcript == [
        "open 1@4",
        "open 2@6",
        "open 3@8",
        "broker 1 full state t/0:2 t/1:3",
        "broker 2 full state t/0:2 t/1:3",
        "broker 3 full state t/0:2 t/1:3",
    ]


@pytest.mark.rule("departed-broker-affects-its-partitions", "departed-broker-loses-leaderships")
def test_the_death_of_a_broker_is_one_transaction_and_one_command_for_each_survivor() -> None:
    driver = with_topic()
    driver.kill_broker(1)
    driver.watch()
    # Two partitions were led by 1: all replicas are sent their elections. Four only lose a
    # follower: only their leaders are sent that.
    assert driver.transcript == [
        "close 1@4",
        "transaction of 6 done",
        "broker 2 lead t/2:2 t/5:3 t/0:2 t/3:2",
        "broker 3 lead t/2:2 t/5:3 t/1:3 t/4:3",
    ]


@pytest.mark.rule("commands-follow-the-write", "failover-takes-few-writes")
def test_changes_of_many_partitions_are_written_in_batches_of_120() -> None:
    driver = with_topic(partitions=300)
    driver.kill_broker(1)
    driver.watch()
    assert [line for line in driver.transcript if line.startswith("transaction")] == [
        "transaction of 120 done",
        "transaction of 120 done",
        "transaction of 60 done",
    ]


def test_of_many_elections_the_new_leader_is_informed_before_its_followers() -> None:
    driver = with_topic(partitions=3 * 600)
    driver.brokers[2].mute = True
    driver.sent.clear()
    driver.kill_broker(1)
    driver.watch()

    def followed_by_3() -> int:
        """Partitions led by broker 2 in their current epochs that broker 3 was informed of."""
        found = [c for to, c in driver.sent if to == 3 and isinstance(c, LeaderAndIsrCommand)]
        return sum(p.state.leader == 2 for command in found for p in command.partitions)

    at_first = followed_by_3()
    assert MANY_ELECTIONS / 4 <= at_first < 300
    driver.pass_time(LEADER_FIRST_MS)
    # Half of the 600 that broker 1 led.
    assert followed_by_3() == 300


@pytest.mark.rule("urgent-changes-do-not-queue")
def test_elections_are_written_before_isr_changes() -> None:
    driver = with_topic(partitions=300)
    driver.kill_broker(1)
    driver.watch()
    found = driver.published_events(Kind.ELECTION, Kind.ISR_SHRINK, stage=Stage.REQUESTED)
    assert [t.kind for t in found] == [Kind.ELECTION] * 100 + [Kind.ISR_SHRINK] * 200


def test_what_a_new_controller_finds_is_summarized_in_one_line() -> None:
    driver = with_topic(partitions=3)
    driver.published.clear()
    driver.take_over()
    (loaded,) = driver.published_events(Kind.CONTROLLER_LOADED)
    assert loaded.details["partitions"] == 3
    assert not driver.published_events(Kind.BROKER_JOINED, Kind.TOPIC_CREATION, Kind.CREATE)


@pytest.mark.rule("failover-takes-few-writes", "writes-run-in-parallel")
def test_batches_in_flight_are_bounded() -> None:
    driver = with_topic(partitions=1_200)
    driver.hold_transactions = True
    driver.kill_broker(1)
    driver.watch()
    assert len(driver.held) == 8
    driver.release()
    assert all(1 not in state.isr_ids for state in driver.states())


@pytest.mark.rule("transactions-compare-controller-term")
def test_every_transaction_compares_the_controller_term() -> None:
    driver = with_topic()
    revision = driver.store.items[KEYS.controller].create_revision
    driver.kill_broker(1)
    driver.watch()
    driver.delete_topic()
    guard = CreateRevision(KEYS.controller, revision)
    assert all(guard in transaction.guards for transaction in driver.transactions)


@pytest.mark.rule("commands-follow-the-write")
def test_nothing_is_sent_before_it_is_stored() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    driver.kill_broker(1)
    driver.watch()
    assert driver.sent == []


def test_a_partition_in_flight_is_not_decided_again() -> None:
    driver = with_topic(partitions=1)
    driver.hold_transactions = True
    driver.kill_broker(1)
    driver.watch()
    driver.kill_broker(3)
    driver.watch()
    assert len(driver.held) == 1
    driver.release()
    assert in_sync(driver.state()) == [2]


@pytest.mark.rule("departed-broker-loses-leaderships")
def test_a_broker_that_restarted_within_its_lease_has_left_and_returned() -> None:
    driver = with_topic(partitions=3)
    before = driver.brokers[2].broker_epoch
    driver.start_broker(2, whole_since=before)
    driver.watch()
    led, *followed = driver.states()
    # The broker stayed intact and is elected again, in a new epoch and with its new incarnation.
    assert (led.leader, led.leader_epoch, in_sync(led)) == (2, 1, [1, 2, 3])
    assert led.leader_broker_epoch == driver.brokers[2].broker_epoch
    assert [in_sync(state) for state in followed] == [[1, 3], [1, 3]]
    assert driver.transcript[0] == f"close 2@{before}"


@pytest.mark.rule("registrations-are-only-created")
def test_a_restart_seen_only_by_the_creation_revision_ends_the_previous_incarnation() -> None:
    driver = with_topic(partitions=1)
    driver.start_broker(2, whole_since=driver.brokers[2].broker_epoch)
    # After a compaction the difference shows only in the watch.
    last = driver.store.unseen.pop()
    driver.store.unseen.clear()
    driver.store.unseen.append(last)
    driver.watch()
    # The restarted leader stayed intact: it is elected again in a new epoch.
    state = driver.state()
    assert (state.leader, state.leader_epoch) == (2, 1)
    assert state.leader_broker_epoch == driver.brokers[2].broker_epoch


@pytest.mark.rule("elections-are-conditional-writes")
def test_an_isr_change_written_by_the_leader_meanwhile_is_absorbed_and_evaluated_again() -> None:
    driver = with_topic(partitions=3)

    def leader_is_faster(_: Transaction) -> None:
        driver.before_transaction = None
        driver.leader_writes_isr(0, 2, 3)

    driver.before_transaction = leader_is_faster
    driver.kill_broker(1)
    driver.watch()
    # The leader of t/0, broker 2, had removed follower 1 itself: nothing is left to do.
    assert driver.transcript == [
        "close 1@4",
        "transaction of 3 rejected",
        "transaction of 2 done",
        # The leader is sent its own ISR change again, which is harmless.
        "broker 2 lead t/0:2",
        "broker 3 lead t/2:2 t/1:3",
        "broker 2 lead t/2:2",
    ]


@pytest.mark.rule("conflict-delays-only-its-partition")
def test_one_conflict_does_not_delay_the_rest_of_its_batch() -> None:
    driver = with_topic(partitions=6)

    def leader_is_faster(transaction: Transaction) -> None:
        if any(key.key.endswith("/2/leaderAndISR") for key in transaction.changes):
            driver.leader_writes_isr(2, 1, 2, 3)  # the same ISR each time

    driver.before_transaction = leader_is_faster
    driver.hold_transactions = True
    driver.kill_broker(1)
    driver.watch()
    driver.brokers[1] = driver.brokers[2]
    held, driver.held = driver.held, []
    first = driver._transact(held[0])
    driver.hold_transactions = True
    driver.feed(first)
    of_partitions = [
        [c for c in command.transaction.changes if not c.key.startswith(KEYS.departures)]
        for command in driver.held
    ]
    sizes = sorted(map(len, of_partitions))
    assert sizes == [1, 5]


def test_an_isr_change_by_the_leader_is_confirmed_to_the_leader_only() -> None:
    driver = with_topic(partitions=1)
    driver.leader_writes_isr(0, 2, 3)
    driver.watch()
    assert driver.transcript == ["broker 2 lead t/0:2"]


def test_an_applied_transaction_without_an_answer_is_found_by_reading() -> None:
    driver = with_topic(partitions=3)
    driver.unanswered_transactions, driver.apply_unanswered = 1, True
    driver.kill_broker(1)
    driver.watch()
    assert len(driver.reads) == 1
    assert epochs(driver) == [0, 0, 1]
    assert driver.transcript[1:] == [
        "broker 2 lead t/2:2 t/0:2",
        "broker 3 lead t/2:2 t/1:3",
        # The answer did not show whether this was written with the elections.
        "transaction of departures done",
    ]


def test_a_transaction_that_was_not_applied_is_retried() -> None:
    driver = with_topic(partitions=3)
    driver.unanswered_transactions, driver.apply_unanswered = 1, False
    driver.kill_broker(1)
    driver.watch()
    assert len(driver.transactions) == 2
    assert epochs(driver) == [0, 0, 1]


def test_reads_of_an_unreachable_store_back_off() -> None:
    driver = with_topic(partitions=1)
    driver.hold_transactions = True
    driver.kill_broker(2)
    driver.watch()
    delays = []
    for _ in range(9):
        (read,) = driver._handle(OutcomeUnknown(driver.held[0].id))
        assert isinstance(read, ReadKeys)
        delays.append(read.delay_ms)
    assert delays[:3] == [50, 100, 200]
    assert delays[-1] == 2_000


def test_a_deposed_controller_steps_down_at_its_first_rejected_transaction() -> None:
    driver = with_topic()

    def another_is_elected(_: Transaction) -> None:
        driver._term(controller_id=2)

    driver.before_transaction = another_is_elected
    driver.kill_broker(1)
    driver.watch()
    assert driver.stepped_down is not None
    assert driver.sent == []


def test_a_deposed_controller_does_nothing_more() -> None:
    driver = with_topic()
    driver.store.delete(KEYS.controller)
    driver.watch()
    driver.kill_broker(1)
    driver.watch()
    assert driver.stepped_down is not None
    assert driver.transactions == []


def test_a_broker_that_follows_a_newer_controller_deposes_the_older() -> None:
    driver = with_topic(partitions=1)
    driver.brokers[2].mute = True
    driver.leader_writes_isr(0, 2, 3)
    driver.watch()
    error = TidelogError(ErrorCode.STALE_CONTROLLER_EPOCH, "newer")
    epoch = driver.brokers[2].broker_epoch
    driver.feed(CommandAnswered(2, epoch, driver.unanswered[0].id, CommandResult(error)))
    assert driver.stepped_down == "broker 2 obeys a newer controller"


@pytest.mark.rule("commands-repeated-until-acknowledged", "unanswered-commands-are-repeated")
def test_a_lost_command_is_sent_again_until_it_is_acknowledged() -> None:
    driver = with_topic(partitions=1)
    driver.brokers[2].lose = True
    driver.leader_writes_isr(0, 2, 3)
    driver.watch()
    driver.pass_time(1_000)
    assert driver.transcript == ["broker 2 lead t/0:2"] * 4
    driver.brokers[2].lose = False
    driver.pass_time(10_000)
    assert len(driver.transcript) == 5


@pytest.mark.rule("commands-sent-in-parallel")
def test_a_slow_broker_gets_only_the_newest_of_the_states_that_it_missed() -> None:
    driver = with_topic(partitions=1)
    driver.brokers[2].mute = True
    for isr in ((2, 3), (2,), (2, 3), (1, 2, 3)):
        driver.leader_writes_isr(0, *isr)
        driver.watch()
    assert len(driver.sent) == 1
    driver.brokers[2].mute = False
    driver.answer(driver.unanswered.pop())
    assert len(driver.sent) == 2
    command = driver.sent[-1][1]
    assert isinstance(command, LeaderAndIsrCommand)
    assert in_sync(command.partitions[0].state) == [1, 2, 3]


def test_a_late_answer_of_a_previous_incarnation_is_no_acknowledgement() -> None:
    driver = with_topic(partitions=1)
    driver.brokers[2].mute = True
    driver.leader_writes_isr(0, 2, 3)
    driver.watch()
    late = driver.unanswered.pop()
    driver.start_broker(2).mute = True
    driver.watch()
    sent = len(driver.sent)
    driver.answer(late)
    driver.pass_time(20_000)
    assert len(driver.sent) == sent
    assert driver.published_events(Kind.COMMAND_OVERDUE)


@pytest.mark.rule("late-acknowledgements-are-reported", "unanswered-commands-are-repeated")
def test_a_broker_that_does_not_acknowledge_in_time_is_logged_once() -> None:
    driver = with_topic(partitions=3)
    driver.brokers[2].mute = True
    driver.leader_writes_isr(0, 2, 3)
    driver.watch()
    driver.pass_time(60_000)
    (found,) = driver.published_events(Kind.COMMAND_OVERDUE)
    assert (found.broker, found.details) == (2, {"partitions": 1, "first": ["t/0"]})


def test_an_idle_cluster_causes_no_commands() -> None:
    driver = with_topic()
    driver.published.clear()
    assert driver.controller.wake_at_ms() is None
    driver.pass_time(3_600_000)
    assert (driver.logs, driver.published, driver.sent, driver.transactions) == ([], [], [], [])


def test_commands_name_the_addresses_and_incarnations_of_their_leaders() -> None:
    driver = with_topic(partitions=3)
    driver.take_over()
    command = driver.sent[0][1]
    assert isinstance(command, LeaderAndIsrCommand)
    assert {b: tuple(a) for b, a in command.leaders.items()} == {
        1: ("10.0.0.1:7500", 4),
        2: ("10.0.0.2:7500", 6),
        3: ("10.0.0.3:7500", 8),
    }


@pytest.mark.rule("refused-connection-is-a-crash")
def test_a_refused_connection_removes_that_registration_and_elects_at_once() -> None:
    driver = with_topic(partitions=3)
    driver.refuse_connection(2)
    assert KEYS.broker(2) not in driver.store.items
    assert driver.state(0).leader == 3
    assert driver.transcript[:3] == [
        "transaction of 1 done",
        "close 2@6",
        "transaction of 3 done",
    ]


@pytest.mark.rule("detection-deletes-watched-incarnation")
def test_a_new_incarnation_is_not_removed_for_its_previous_one() -> None:
    driver = with_topic(partitions=3)
    previous = driver.brokers[2].broker_epoch
    driver.start_broker(2)
    # The controller has not yet received the new registration when the dial is refused.
    unseen, driver.store.unseen = driver.store.unseen, type(driver.store.unseen)()
    driver.feed(ConnectionEnded(2, previous, DialOutcome.REFUSED, 3))
    driver.store.unseen = unseen
    driver.watch()
    assert KEYS.broker(2) in driver.store.items
    assert "transaction of 1 rejected" in driver.transcript


@pytest.mark.rule("detection-deletes-watched-incarnation")
def test_a_closed_connection_to_a_previous_incarnation_has_no_effect() -> None:
    driver = with_topic(partitions=3)
    previous = driver.brokers[2].broker_epoch
    driver.start_broker(2)
    driver.watch()
    driver.transactions.clear()
    driver.feed(ConnectionEnded(2, previous, DialOutcome.REFUSED, 3))
    assert driver.transactions == []


@pytest.mark.rule("detection-deletes-watched-incarnation")
def test_after_two_removals_in_a_minute_only_the_lease_ends_a_registration() -> None:
    driver = cluster(1, 2)
    for _ in range(2):
        driver.refuse_connection(2)
        driver.start_broker(2)
        driver.watch()
    driver.refuse_connection(2)
    assert KEYS.broker(2) in driver.store.items
    driver.pass_time(60_000)
    driver.refuse_connection(2)
    assert KEYS.broker(2) not in driver.store.items


def test_a_lost_connection_to_a_living_broker_is_followed_by_its_full_state() -> None:
    driver = with_topic(partitions=1)
    epoch = driver.brokers[2].broker_epoch
    driver.feed(ConnectionEnded(2, epoch, DialOutcome.ACCEPTED, 1))
    assert driver.transcript == ["broker 2 full state t/0:2"]


def test_a_stopping_broker_transfers_its_leaderships() -> None:
    driver = with_topic(partitions=3)
    registration = driver.store.items[KEYS.broker(2)]
    driver.store.put(registration.key, registration.value.replace(b'"running"', b'"stopping"'))
    driver.watch()
    assert [state.leader for state in driver.states()] == [3, 3, 1]


def test_without_a_candidate_the_partition_waits_for_its_last_member() -> None:
    driver = with_topic(partitions=1, brokers=(1, 2, 3), factor=1)
    (holder,) = driver.state().replicas
    epoch = driver.brokers[holder].broker_epoch
    driver.kill_broker(holder)
    driver.watch()
    assert driver.state().leader == NO_LEADER
    driver.start_broker(holder, whole_since=epoch)
    driver.watch()
    assert (driver.state().leader, driver.state().leader_epoch) == (holder, 2)


def test_a_malformed_value_is_logged_and_affects_nothing_else() -> None:
    driver = with_topic(partitions=3)
    driver.store.put(KEYS.leader_and_isr(TopicPartition("t", 0)), b"{not json")
    driver.store.put(KEYS.topic("u"), b"[]")
    driver.kill_broker(1)
    driver.watch()
    found = [fields["key"] for name, fields in driver.logs if name == "metadata_malformed"]
    assert found == [KEYS.leader_and_isr(TopicPartition("t", 0)), KEYS.topic("u")]
    assert "transaction of 2 done" in driver.transcript


@pytest.mark.rule("deletion-stops-on-every-broker")
def test_stop_commands_carry_the_revision_of_the_write_that_stops() -> None:
    driver = with_topic(partitions=1)
    driver.brokers[2].mute = True
    driver.delete_topic()
    stopped = driver.store.items[KEYS.leader_and_isr(TopicPartition("t", 0))]
    command = next(c for b, c in driver.sent if b == 2)
    assert isinstance(command, StopReplicaCommand)
    (stop,) = command.partitions
    assert (stop.revision, stop.delete, stop.leader_epoch) == (stopped.mod_revision, True, 1)
