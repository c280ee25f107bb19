"""Helpers for clusters with operations."""

from __future__ import annotations

from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog_controller.state.admin_answers import (
    OperationAnswer,
    OperationMovesAnswer,
    OperationView,
    PlanSummary,
)
from tidelog_controller.state.admin_requests import (
    DescribeOperation,
    Reassignment,
    RequestedReplicas,
)
from tidelog_runtime.metadata.operations import OperationState, decode_operation
from unit.controller.driver import KEYS, Driver, cluster


def by_hand(*moves: tuple[int, tuple[int, ...]]) -> Reassignment:
    return Reassignment(
        tuple(RequestedReplicas(TopicPartition("t", number), target) for number, target in moves)
    )


def with_topic(partitions: int = 3, *, brokers: int = 4, factor: int = 2) -> Driver:
    """The last broker starts after the topic was created, and holds nothing."""
    driver = cluster(*range(1, brokers))
    driver.create_topic(partitions=partitions, replication_factor=factor)
    driver.start_broker(brokers)
    driver.watch()
    driver.published.clear()
    driver.transcript.clear()
    return driver


def catch_up(driver: Driver) -> None:
    """Adds every replica of every partition to its ISR, until no partition moves any more."""
    for _ in range(100):
        numbers = range(len(driver.states()))
        moving = [number for number in numbers if driver.state(number).moving is not None]
        if not moving:
            return
        for number in moving:
            state = driver.state(number)
            driver.leader_writes_isr(number, *(b for b in state.replicas if b in driver.brokers))
        driver.watch()
    raise AssertionError("partitions move for ever")


def code_of(driver: Driver, request: int) -> ErrorCode | None:
    error = driver.replies[request].error
    return error.code if error else None


def answer_of(driver: Driver, request: int) -> OperationAnswer:
    answer = driver.replies[request].answer
    assert isinstance(answer, OperationAnswer), driver.replies[request]
    return answer


def plan_of(driver: Driver, request: int) -> PlanSummary:
    plan = answer_of(driver, request).plan
    assert plan is not None
    return plan


def operation_of(driver: Driver, request: int) -> OperationView:
    operation = answer_of(driver, request).operation
    assert operation is not None
    return operation


def state_of(driver: Driver, operation_id: str = "op") -> OperationState:
    return decode_operation(driver.store.items[KEYS.operation(operation_id)].value).state


def described(driver: Driver, operation_id: str = "op", **page: object) -> OperationMovesAnswer:
    fields = {"page_size": 0, "page_token": "", **page}
    answer = driver.ask(DescribeOperation(0, operation_id, **fields)).answer  # type: ignore[arg-type]
    assert isinstance(answer, OperationMovesAnswer)
    return answer


def plan_keys(driver: Driver) -> list[str]:
    return [key for key in driver.store.items if key.startswith(KEYS.operation_plans)]


def interrupted(driver: Driver, transactions: int) -> None:
    """The controller dies after so many more transactions; the client repeats its request to the
    next one.
    """
    left = [transactions]

    def last(_: object) -> None:
        left[0] -= 1
        driver.hold_transactions = left[0] <= 0

    driver.before_transaction = last
