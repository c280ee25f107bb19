"""Changes to the configuration of an existing topic."""

from __future__ import annotations

import pytest

from tidelog.admin_messages import ConfigChange
from tidelog.errors import ErrorCode
from tidelog.state_changes.event import Kind, Stage
from tidelog_controller.state.admin_answers import ConfigAnswer
from tidelog_runtime.metadata.schema import decode_topic
from tidelog_runtime.replica_control import LeaderAndIsrCommand
from unit.controller.driver import CALLER, KEYS, Driver, cluster
from unit.controller.operated import by_hand


def with_topic(config: dict[str, str] | None = None) -> Driver:
    driver = cluster(1, 2, 3)
    driver.create_topic(config=config or {})
    driver.transcript.clear()
    driver.sent.clear()
    driver.published.clear()
    return driver


def config_of(driver: Driver) -> dict[str, str]:
    return dict(decode_topic(driver.store.items[KEYS.topic("t")].value).config)


def answer_of(driver: Driver, request: int) -> ConfigAnswer:
    answer = driver.replies[request].answer
    assert isinstance(answer, ConfigAnswer)
    return answer


def code_of(driver: Driver, request: int) -> ErrorCode | None:
    error = driver.replies[request].error
    return error.code if error else None


def test_set_and_unset_keys_change_and_the_others_stay() -> None:
    driver = with_topic({"segment_ms": "5000", "retention_ms": "9000"})
    request = driver.alter_config({"max_batch_bytes": "2048"}, "segment_ms")
    assert config_of(driver) == {"retention_ms": "9000", "max_batch_bytes": "2048"}
    assert answer_of(driver, request) == ConfigAnswer(
        (
            ConfigChange("max_batch_bytes", "1048576", "2048"),
            ConfigChange("segment_ms", "5000", "604800000"),
        ),
        driver.store.items[KEYS.topic("t")].mod_revision,
    )


def test_a_dry_run_shows_the_changes_and_changes_nothing() -> None:
    driver = with_topic()
    before = dict(driver.store.items)
    request = driver.alter_config({"unclean_leader_election": "true"}, dry_run=True)
    assert answer_of(driver, request).changes == (
        ConfigChange("unclean_leader_election", "false", "true"),
    )
    assert driver.store.items == before


def test_a_new_min_isr_is_in_force_when_it_is_acknowledged() -> None:
    driver = with_topic()
    request = driver.alter_config({"min_insync_replicas": "3"})
    assert code_of(driver, request) is None
    assert [state.min_isr for state in driver.states()] == [3, 3, 3]


def test_leaders_that_do_not_acknowledge_a_new_min_isr_in_time_are_named() -> None:
    driver = with_topic()
    leader = driver.state().leader
    driver.brokers[leader].mute = True
    request = driver.alter_config({"min_insync_replicas": "3"}, timeout_ms=2_000)
    assert request not in driver.replies
    driver.pass_time(2_000)
    assert driver.replies[request].pending_brokers == (leader,)


def test_commands_carry_the_new_configuration_with_the_revision_of_its_key() -> None:
    driver = with_topic()
    driver.alter_config({"segment_ms": "5000"})
    driver.sent.clear()
    driver.kill_broker(driver.state().leader)
    driver.watch()
    commands = [c for _, c in driver.sent if isinstance(c, LeaderAndIsrCommand)]
    revision = driver.store.items[KEYS.topic("t")].mod_revision
    brought = {(p.config["segment_ms"], p.config_revision) for c in commands for p in c.partitions}
    assert brought == {("5000", revision)}


def test_an_unchanged_configuration_needs_no_write_whatever_the_revision() -> None:
    driver = with_topic({"segment_ms": "5000"})
    before = dict(driver.store.items)
    request = driver.alter_config({"segment_ms": "5000"}, expected_revision=1)
    assert answer_of(driver, request).changes == ()
    assert driver.store.items == before


def test_an_older_revision_is_rejected() -> None:
    driver = with_topic()
    revision = driver.store.items[KEYS.topic("t")].mod_revision
    driver.alter_config({"segment_ms": "5000"}, expected_revision=revision)
    request = driver.alter_config({"segment_ms": "6000"}, expected_revision=revision)
    assert code_of(driver, request) is ErrorCode.REVISION_CONFLICT
    assert config_of(driver) == {"segment_ms": "5000"}


def test_two_concurrent_changes_both_apply() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    first = driver.alter_config({"segment_ms": "5000"})
    second = driver.alter_config({"retention_ms": "9000"})
    driver.release()
    assert config_of(driver) == {"segment_ms": "5000", "retention_ms": "9000"}
    assert (code_of(driver, first), code_of(driver, second)) == (None, None)


@pytest.mark.parametrize(
    ("changed", "unset", "code"),
    [
        ({}, (), ErrorCode.INVALID_REQUEST),
        ({"segment_ms": "5000"}, ("segment_ms",), ErrorCode.INVALID_REQUEST),
        ({"segment": "5000"}, (), ErrorCode.INVALID_CONFIG),
        ({"segment_ms": "soon"}, (), ErrorCode.INVALID_CONFIG),
        ({}, ("segment",), ErrorCode.INVALID_CONFIG),
        ({"min_insync_replicas": "4"}, (), ErrorCode.INVALID_CONFIG),
        ({"durability": "synced"}, (), ErrorCode.INVALID_CONFIG),
    ],
)
def test_an_invalid_change_is_rejected_and_changes_nothing(
    changed: dict[str, str], unset: tuple[str, ...], code: ErrorCode
) -> None:
    driver = with_topic()
    before = dict(driver.store.items)
    assert code_of(driver, driver.alter_config(changed, *unset)) is code
    assert driver.store.items == before


def test_a_synced_topic_can_be_made_unsynced() -> None:
    driver = with_topic({"durability": "synced"})
    assert code_of(driver, driver.alter_config({}, "durability")) is None
    assert config_of(driver) == {}


def test_a_change_is_published_with_its_caller_and_its_changes() -> None:
    driver = with_topic()
    driver.alter_config({"segment_ms": "5000"})
    events = driver.published_events(Kind.TOPIC_CONFIG)
    assert [t.stage for t in events] == [Stage.REQUESTED, Stage.COMPLETED]
    assert events[0].details == {
        "changes": ["segment_ms: 604800000 -> 5000"],
        "requested_by": CALLER.name,
        "requested_from": CALLER.address,
    }


def test_partitions_can_still_be_added_after_the_topic_key_was_overwritten() -> None:
    """The creation revision of the topic's key guards their first write; it differs from the
    revision of the change.
    """
    driver = with_topic()
    driver.alter_config({"segment_ms": "5000"})
    driver.add_partitions(5)
    assert len(driver.states()) == 5


def test_a_min_isr_above_the_replicas_of_a_partition_is_rejected() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic()
    driver.begin_operation(by_hand((1, (1, 2))), "op")
    assert len(driver.state(1).replicas) == 2
    error = driver.replies[driver.alter_config({"min_insync_replicas": "3"})].error
    assert error is not None
    assert (error.code, "t/1 has" in error.message) == (ErrorCode.INVALID_CONFIG, True)
    assert driver.replies[driver.alter_config({"min_insync_replicas": "2"})].error is None
