"""The feature level: who may raise it, when, and to what."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.feature_levels import UNREPORTED, LevelRange
from tidelog.state_changes.event import Kind, Stage
from tidelog_controller.state.admin_answers import LevelAnswer
from tidelog_controller.state.admin_requests import DescribeFeatureLevel, RaiseFeatureLevel
from tidelog_controller.state.events import Loaded
from tidelog_runtime.metadata.schema import (
    RUNNING,
    BrokerRegistration,
    ClusterEntry,
    ControllerProcess,
    encode,
)
from tidelog_runtime.metadata.store import Put, Transaction
from unit.controller.driver import CALLER, KEYS, Driver

NEXT = LevelRange(1, 2)


def register_broker(driver: Driver, broker_id: int, levels: LevelRange, version: str = "") -> None:
    """Registers a broker as a release with feature levels does."""
    driver.start_broker(broker_id)
    registration = BrokerRegistration(
        f"10.0.0.{broker_id}:7500", "", f"uuid-{broker_id}", RUNNING, 0, 0, "", version, levels
    )
    key = KEYS.broker(broker_id)
    mark = Put(KEYS.last_registration, b"{}")
    driver.store.transact(Transaction([], [Put(key, encode(registration)), mark]))


def register_controller(driver: Driver, levels: LevelRange) -> None:
    process = ControllerProcess("10.0.0.9:7400", 1, "", "", "0.2.0", levels)
    driver.store.put(KEYS.controller_process(1), encode(process))


def upgraded(broker_levels: LevelRange = NEXT, controller_levels: LevelRange = NEXT) -> Driver:
    """A cluster at level 1 with one broker, and one controller that supports levels 1 and 2."""
    driver = Driver()
    driver.store.put(KEYS.cluster, encode(ClusterEntry("c-1", 1)))
    register_broker(driver, 1, broker_levels, "0.2.0")
    register_controller(driver, controller_levels)
    driver.controller.context.levels.own = NEXT
    driver.feed(Loaded(driver.store.snapshot()))
    driver.store.unseen.clear()
    return driver


def ask(
    driver: Driver, level: int, revision: int = 0, *, dry_run: bool = False
) -> TidelogError | None:
    return driver.ask(RaiseFeatureLevel(0, level, revision, dry_run=dry_run, caller=CALLER)).error


def stored_level(driver: Driver) -> int:
    level = json.loads(driver.store.items[KEYS.cluster].value)["format_version"]
    assert isinstance(level, int)
    return level


def described(driver: Driver) -> LevelAnswer:
    answer = driver.ask(DescribeFeatureLevel(0)).answer
    assert isinstance(answer, LevelAnswer)
    return answer


def test_the_level_is_raised_described_and_published() -> None:
    driver = upgraded()
    assert described(driver).level == 1
    assert ask(driver, 2) is None
    answer = described(driver)
    assert (answer.level, answer.newest, stored_level(driver)) == (2, 2, 2)
    assert [str(process) for process in answer.processes] == ["broker 1", "controller 1"]
    (raised,) = driver.published_events(Kind.FEATURE_LEVEL, stage=Stage.COMPLETED)
    assert (raised.details["before"], raised.details["after"]) == (1, 2)
    assert raised.details["requested_by"] == CALLER.name


def test_the_id_of_the_cluster_stays() -> None:
    driver = upgraded()
    ask(driver, 2)
    assert json.loads(driver.store.items[KEYS.cluster].value)["cluster_id"] == "c-1"


@pytest.mark.rule("level-never-falls")
def test_the_level_is_never_lowered() -> None:
    driver = upgraded()
    ask(driver, 2)
    error = ask(driver, 1)
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST
    assert "level 2, which is never lowered to 1" in error.message
    assert stored_level(driver) == 2


def test_a_level_in_force_is_accepted_again() -> None:
    driver = upgraded()
    assert ask(driver, 2) is None
    assert ask(driver, 2, revision=1) is None


def test_a_level_beyond_the_release_of_the_controller_is_rejected() -> None:
    error = ask(upgraded(), 3)
    assert error is not None
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "supports feature levels 1 to 2 and not 3" in error.message


@pytest.mark.rule("registered-process-supports-level")
@pytest.mark.parametrize(
    ("driver", "named"),
    [
        (
            lambda: upgraded(broker_levels=UNREPORTED),
            "1 process would not work at feature level 2: broker 1 (0.2.0)",
        ),
        (lambda: upgraded(controller_levels=UNREPORTED), "controller 1 (0.2.0)"),
    ],
)
def test_a_process_that_does_not_support_the_level_is_named(
    driver: Callable[[], Driver], named: str
) -> None:
    cluster = driver()
    error = ask(cluster, 2, dry_run=True)
    assert error is not None
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert named in error.message
    assert ask(cluster, 2) is not None
    assert stored_level(cluster) == 1


def test_a_dry_run_changes_nothing() -> None:
    driver = upgraded()
    assert ask(driver, 2, dry_run=True) is None
    assert stored_level(driver) == 1


def test_an_older_revision_is_rejected() -> None:
    driver = upgraded()
    error = ask(driver, 2, revision=driver.store.revision + 5)
    assert error is not None
    assert error.code is ErrorCode.REVISION_CONFLICT


@pytest.mark.rule("registered-process-supports-level")
def test_a_process_that_registers_at_the_moment_of_the_raise_prevents_it() -> None:
    """The raise has been decided without it. Its registration leaves a mark that the transaction
    compares; the raise then waits for the watch, and checks the process."""
    driver = upgraded()

    def registers(transaction: Transaction) -> None:
        if any(change.key == KEYS.cluster for change in transaction.changes):
            driver.before_transaction = None
            register_broker(driver, 2, UNREPORTED)

    driver.before_transaction = registers
    error = ask(driver, 2)
    assert error is not None
    assert "broker 2 (an earlier release)" in error.message
    assert stored_level(driver) == 1


def test_a_registration_that_supports_the_level_only_delays_the_raise() -> None:
    driver = upgraded()

    def registers(transaction: Transaction) -> None:
        if any(change.key == KEYS.cluster for change in transaction.changes):
            driver.before_transaction = None
            register_broker(driver, 2, NEXT)

    driver.before_transaction = registers
    assert ask(driver, 2) is None
    assert stored_level(driver) == 2
