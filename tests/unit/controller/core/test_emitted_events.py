"""State changes that a controller publishes.

`golden/leader_death.txt` is the death of a leader as events, from the dropped connection to the
last follower's acknowledgement. Read a changed transcript before you accept it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH
from tidelog.state_changes.event import (
    NO_BROKER,
    NO_REVISION,
    Cause,
    Kind,
    Stage,
    broker_stopping,
)
from tidelog_controller.state.commands import EmitEvent
from tidelog_controller.state.events import ConnectionEnded, DialOutcome, Transacted
from unit.controller.driver import (
    COMMAND_TIMEOUT_MS,
    KEYS,
    WALL_MS,
    Driver,
    cluster,
)
from unit.controller.lost_data import down, reboot, write

_GOLDEN = Path(__file__).parent / "golden" / "leader_death.txt"


def with_topic(partitions: int = 1) -> Driver:
    """The events of the creation are discarded."""
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=partitions)
    driver.published.clear()
    return driver


def line(published: EmitEvent) -> str:
    parts = [f"{published.kind.value} {published.stage.value}"]
    cause = published.change.cause if published.cause is None else published.cause
    shown = {
        "cause": cause.value,
        "change": published.change.id,
        "partition": str(published.name) if published.name else published.topic,
        "broker": ""
        if published.broker == NO_BROKER
        else f"{published.broker}@{published.broker_epoch}",
        "epoch": "" if published.leader_epoch == NO_EPOCH else str(published.leader_epoch),
        "revision": "" if published.revision == NO_REVISION else str(published.revision),
    }
    parts += [f"{name}={value}" for name, value in shown.items() if value]
    parts += [f"{name}={value}" for name, value in published.details.items()]
    return " ".join(parts)


def stages(driver: Driver, kind: Kind) -> list[Stage]:
    return [published.stage for published in driver.published_events(kind)]


def test_the_death_of_a_leader_is_published_from_connection_loss_to_the_last_follower() -> None:
    driver = with_topic(partitions=2)
    leader = driver.state(0).leader
    driver.refuse_connection(leader)
    assert "\n".join(map(line, driver.published)) + "\n" == _GOLDEN.read_text()


def test_every_stage_of_an_election_has_one_id_and_the_time_of_its_decision() -> None:
    driver = with_topic()
    driver.refuse_connection(driver.state().leader)
    kinds = (Kind.ELECTION, Kind.BECOME_LEADER, Kind.BECOME_FOLLOWER)
    changes = {published.change for published in driver.published_events(*kinds)}
    assert changes == {driver.state().change}
    (change,) = changes
    assert change.requested_at_ms == WALL_MS + driver.now_ms
    assert change.cause is Cause.BROKER_CRASHED


def test_each_batch_has_a_change_id_of_its_own() -> None:
    driver = with_topic(partitions=300)
    driver.kill_broker(1)
    driver.watch()
    assert len({state.change.id for state in driver.states()}) == 3


def test_a_creation_is_published_from_the_request_to_the_last_acknowledgement() -> None:
    driver = cluster(1, 2, 3)
    driver.published.clear()
    driver.brokers[3].mute = True
    driver.create_topic(partitions=1)
    published = [Stage.REQUESTED, Stage.COMPLETED]
    assert stages(driver, Kind.TOPIC_CREATION) == published
    assert stages(driver, Kind.CREATE) == published
    driver.answer(driver.unanswered.pop())
    assert stages(driver, Kind.TOPIC_CREATION) == [*published, Stage.ACKNOWLEDGED]


def test_a_creation_is_acknowledged_also_after_its_request_has_timed_out() -> None:
    driver = cluster(1, 2, 3)
    driver.brokers[3].mute = True
    request = driver.create_topic(partitions=1, timeout_ms=1_000)
    driver.pass_time(2_000)
    assert driver.replies[request].pending_brokers == (3,)
    assert not driver.published_events(Kind.TOPIC_CREATION, stage=Stage.ACKNOWLEDGED)
    driver.answer(driver.unanswered.pop())
    (published,) = driver.published_events(Kind.TOPIC_CREATION, stage=Stage.ACKNOWLEDGED)
    assert published.change == driver.published_events(Kind.TOPIC_CREATION)[0].change


def test_a_creation_is_acknowledged_when_the_last_unanswered_broker_leaves() -> None:
    driver = cluster(1, 2, 3)
    driver.brokers[3].mute = True
    driver.create_topic(partitions=1)
    driver.kill_broker(3)
    driver.watch()
    assert len(driver.published_events(Kind.TOPIC_CREATION, stage=Stage.ACKNOWLEDGED)) == 1


def test_a_deletion_is_published_with_one_id_and_each_replica() -> None:
    driver = with_topic()
    driver.delete_topic()
    deletion = driver.published_events(Kind.TOPIC_DELETION)
    assert [published.stage for published in deletion] == [Stage.REQUESTED, Stage.COMPLETED]
    assert len({published.change.id for published in deletion}) == 1
    replicas = [
        published
        for published in driver.published_events(Kind.DELETE)
        if published.broker != NO_BROKER
    ]
    assert {(published.broker, published.stage) for published in replicas} == {
        (broker, stage) for broker in (1, 2, 3) for stage in (Stage.REQUESTED, Stage.ACKNOWLEDGED)
    }


def test_a_repeated_command_is_published_once() -> None:
    driver = with_topic()
    led = driver.state().leader
    follower = next(b for b in driver.state().replicas if b != led)
    driver.brokers[follower].lose = True
    driver.refuse_connection(led)
    driver.pass_time(1_000)
    sent = [1 for broker, _ in driver.sent if broker == follower]
    driver.brokers[follower].lose = False
    driver.pass_time(3_000)
    assert len(sent) > 3
    published = driver.published_events(Kind.BECOME_LEADER, Kind.BECOME_FOLLOWER)
    assert [t.stage for t in published if t.broker == follower] == [
        Stage.REQUESTED,
        Stage.ACKNOWLEDGED,
    ]


def test_a_rejected_command_is_not_published_as_acknowledged() -> None:
    driver = with_topic()
    led = driver.state().leader
    for broker in driver.brokers.values():
        broker.refuse = lambda _: TidelogError(ErrorCode.STORAGE_ERROR, "no room")
    driver.refuse_connection(led)
    driver.pass_time(5_000)
    assert not driver.published_events(stage=Stage.ACKNOWLEDGED)


def test_a_full_state_is_published_as_one_command() -> None:
    driver = with_topic(partitions=50)
    driver.take_over()
    published = driver.published_events(Kind.COMMAND)
    assert {(t.broker, t.stage, t.change.cause) for t in published} == {
        (broker, stage, Cause.NEW_CONTROLLER)
        for broker in (1, 2, 3)
        for stage in (Stage.REQUESTED, Stage.ACKNOWLEDGED)
    }
    assert not driver.published_events(Kind.BECOME_LEADER, Kind.BECOME_FOLLOWER)


def test_an_isr_change_by_the_leader_is_not_published_by_the_controller() -> None:
    driver = with_topic()
    leader, follower, _ = driver.state().replicas
    state = driver.state()
    kept = [m for m in state.isr if m.broker_id in (leader, follower)]
    by_broker = state.change._replace(id="b1-4-1")
    write(driver, state.with_isr(kept).with_change(by_broker))
    driver.watch()
    assert driver.sent
    assert not driver.published


def test_a_removed_follower_is_published_as_a_shrunk_isr_with_the_reason() -> None:
    driver = with_topic()
    follower = driver.state().replicas[-1]
    driver.refuse_connection(follower)
    published = driver.published_events(Kind.ISR_SHRINK)
    assert [(t.stage, t.change.cause) for t in published] == [
        (Stage.REQUESTED, Cause.BROKER_CRASHED),
        (Stage.COMPLETED, Cause.BROKER_CRASHED),
    ]


def test_a_rejected_batch_is_published_as_failed_by_a_conflict() -> None:
    driver = with_topic()
    leader = driver.state().leader

    def conflict(_: object) -> None:
        driver.before_transaction = None
        state = driver.state()
        write(driver, state.with_isr(state.isr[:2]))

    driver.before_transaction = conflict
    driver.kill_broker(leader)
    driver.watch()
    published = driver.published_events(Kind.ELECTION)
    assert [(t.stage, t.cause) for t in published] == [
        (Stage.REQUESTED, None),
        (Stage.FAILED, Cause.CONFLICT),
        (Stage.REQUESTED, None),
        (Stage.COMPLETED, None),
    ]
    assert published[0].change.id != published[2].change.id


@pytest.mark.parametrize("applied", [True, False])
def test_an_unanswered_transaction_is_published_with_the_outcome_found(applied: bool) -> None:
    driver = with_topic()
    driver.unanswered_transactions = 1
    driver.apply_unanswered = applied
    driver.kill_broker(driver.state().leader)
    driver.watch()
    published = [(t.stage, t.cause) for t in driver.published_events(Kind.ELECTION)]
    if applied:
        assert published == [(Stage.REQUESTED, None), (Stage.COMPLETED, None)]
    else:
        assert published[:2] == [(Stage.REQUESTED, None), (Stage.FAILED, Cause.TIMEOUT)]
        assert published[-1] == (Stage.COMPLETED, None)


def test_a_change_seen_first_in_the_watch_is_published_as_completed_before_commands() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    driver.kill_broker(driver.state().leader)
    driver.watch()
    (command,) = driver.held
    result = driver.store.transact(command.transaction)
    driver.watch()
    published = [t for t in driver.published if t.change.id == driver.state().change.id]
    assert [(t.kind, t.stage) for t in published[:3]] == [
        (Kind.ELECTION, Stage.REQUESTED),
        (Kind.ELECTION, Stage.COMPLETED),
        (published[2].kind, Stage.REQUESTED),
    ]
    driver.feed(Transacted(command.id, result))
    assert stages(driver, Kind.ELECTION) == [Stage.REQUESTED, Stage.COMPLETED]


def test_an_overdue_broker_that_caught_up_is_published_with_the_time_it_took() -> None:
    driver = with_topic(partitions=3)
    driver.brokers[2].mute = True
    driver.leader_writes_isr(0, 2, 3)
    driver.watch()
    required_at_ms = WALL_MS + driver.now_ms
    driver.pass_time(COMMAND_TIMEOUT_MS)
    driver.answer(driver.unanswered.pop())
    overdue, caught_up = driver.published_events(Kind.COMMAND_OVERDUE)
    assert (overdue.stage, caught_up.stage) == (Stage.COMPLETED, Stage.ACKNOWLEDGED)
    assert caught_up.change == overdue.change
    assert caught_up.change.requested_at_ms == required_at_ms


def test_a_crash_is_published_with_how_and_when_it_was_noticed() -> None:
    driver = with_topic()
    driver.refuse_connection(2)
    fenced, done = driver.published_events(Kind.BROKER_FENCED)
    assert (fenced.stage, done.stage) == (Stage.REQUESTED, Stage.COMPLETED)
    assert fenced.details == {"dial": "refused", "detection_ms": 3}
    assert fenced.change.requested_at_ms == WALL_MS + driver.now_ms - 3


@pytest.mark.parametrize("applied", [True, False])
def test_an_unanswered_removal_is_published_with_the_outcome_found(applied: bool) -> None:
    driver = with_topic()
    driver.unanswered_transactions = 1
    driver.apply_unanswered = applied
    driver.refuse_connection(2)
    ended = (Stage.COMPLETED, None) if applied else (Stage.FAILED, Cause.TIMEOUT)
    published = [(t.stage, t.cause) for t in driver.published_events(Kind.BROKER_FENCED)]
    assert published == [(Stage.REQUESTED, None), ended]


def test_a_removal_that_meets_the_next_incarnation_is_published_as_failed() -> None:
    driver = with_topic()
    previous = driver.brokers[2].broker_epoch
    driver.start_broker(2)
    unseen, driver.store.unseen = driver.store.unseen, type(driver.store.unseen)()
    driver.feed(ConnectionEnded(2, previous, DialOutcome.REFUSED, 3))
    driver.store.unseen = unseen
    driver.watch()
    assert stages(driver, Kind.BROKER_FENCED) == [Stage.REQUESTED, Stage.FAILED]


def test_a_stopping_broker_is_published_as_stopping_and_then_as_stopped() -> None:
    driver = with_topic()
    registered = driver.store.items[KEYS.broker(2)].value
    driver.store.put(KEYS.broker(2), registered.replace(b"running", b"stopping"))
    driver.watch()
    driver.kill_broker(2)
    driver.watch()
    (heard,) = driver.published_events(Kind.BROKER_STOPPING)
    assert heard.stage is Stage.RECEIVED
    assert heard.change == broker_stopping(2, heard.broker_epoch)
    (left,) = driver.published_events(Kind.BROKER_LEFT)
    assert left.cause is Cause.BROKER_STOPPED


def test_an_unreachable_broker_is_published_only_rarely() -> None:
    driver = with_topic()
    epoch = driver.brokers[2].broker_epoch
    for _ in range(50):
        driver.feed(ConnectionEnded(2, epoch, DialOutcome.NO_ANSWER, 200))
        driver.pass_time(2_000)
    assert len(driver.published_events(Kind.CONNECTION_LOST)) == 2


def test_a_joining_broker_is_published_as_registered() -> None:
    driver = with_topic()
    driver.start_broker(4)
    driver.watch()
    (published,) = driver.published_events(Kind.BROKER_JOINED)
    assert published.cause is Cause.REGISTERED


@pytest.mark.parametrize(
    ("dial", "cause"),
    [
        (DialOutcome.ACCEPTED, Cause.CONNECTION_LOST),
        (DialOutcome.NO_ANSWER, Cause.NO_ANSWER),
    ],
)
def test_a_lost_connection_is_published_with_how_its_address_answers(
    dial: DialOutcome, cause: Cause
) -> None:
    driver = with_topic()
    driver.feed(ConnectionEnded(2, driver.brokers[2].broker_epoch, dial, 200))
    (published,) = driver.published_events(Kind.CONNECTION_LOST)
    assert published.cause is cause


def test_an_unclean_election_reports_what_the_logs_held_and_which_records_are_lost() -> None:
    driver = down()
    for broker_id, end in ((1, 7), (2, 12), (3, 9)):
        driver.start_broker(broker_id).logs[0] = (end, ((0, 0),))
    # One of them has records of a newer epoch, and is elected for that.
    driver.brokers[1].logs[0] = (7, ((0, 0), (1, 6)))
    driver.watch()
    published = driver.published_events(Kind.UNCLEAN_ELECTION, stage=Stage.COMPLETED)[-1]
    assert published.change.cause is Cause.RECOVERY
    assert published.details["lost_records"] == 6
    assert published.details["logs"] == [
        "broker 1 ends at 7 in epoch 1",
        "broker 2 ends at 12 in epoch 0",
        "broker 3 ends at 9 in epoch 0",
    ]


def test_a_consent_and_its_election_are_published() -> None:
    driver = down(config={"recovery": "manual"})
    reboot(driver, 1, 2, 3)
    driver.watch()
    driver.published.clear()
    driver.recover()
    assert stages(driver, Kind.RECOVERY_CONSENT) == [Stage.REQUESTED, Stage.COMPLETED]
    assert driver.published_events(Kind.UNCLEAN_ELECTION)[0].change.cause is Cause.CONSENT
