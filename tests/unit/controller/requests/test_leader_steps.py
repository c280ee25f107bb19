"""A step of the controller checks a bounded number of requested leaders."""

from __future__ import annotations

import pytest

from tidelog.model import TopicPartition
from tidelog_controller.requests import leader_admin
from tidelog_controller.requests.leader_admin import LeaderAdmin
from tidelog_controller.state.admin_requests import (
    ElectPreferredLeaders,
    MoveLeaders,
    SetMaintenance,
)
from tidelog_controller.state.context import Context
from unit.controller.driver import Driver
from unit.controller.requests.test_leader_admin import answer_of, with_topic, without_preferred


def test_a_step_checks_a_bounded_number_of_requested_leaders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, _ = without_preferred(9)
    monkeypatch.setattr(leader_admin, "MAX_CHECKED_PER_STEP", 2)
    monkeypatch.setattr(leader_admin, "MIN_CHECKED_PER_STEP", 1)
    driver.hold_transactions = True
    request = ElectPreferredLeaders(90, (), False, 5_000)
    driver.feed(request)
    checked: list[int] = []
    result = LeaderAdmin._result

    def counted(*parts: object) -> object:
        checked[-1] += 1
        return result(*parts)  # type: ignore[arg-type]

    def handled(*parts: object) -> object:
        checked.append(0)
        return handle(*parts)  # type: ignore[arg-type]

    handle = driver.controller.handle
    monkeypatch.setattr(LeaderAdmin, "_result", counted)
    monkeypatch.setattr(driver.controller, "handle", handled)
    driver.release()
    assert len(answer_of(driver.replies[90]).results) == 3
    assert max(checked) <= 2
    # Requests that time out are bounded too.
    checked.clear()
    driver.hold_transactions = True
    driver.feed(MoveLeaders(91, tuple((n, 2) for n in names(9)), False, 5_000))
    driver.pass_time(5_000)
    assert len(answer_of(driver.replies[91]).results) == 9
    assert max(checked) <= 2


def names(partitions: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(partitions)]


def _count_per_step(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, of: type, method: str
) -> list[int]:
    """The number of calls in each later step."""
    calls: list[int] = []
    original, handle = getattr(of, method), driver.controller.handle

    def counted(*parts: object) -> object:
        calls[-1] += 1
        return original(*parts)

    def handled(*parts: object) -> object:
        calls.append(0)
        return handle(*parts)  # type: ignore[arg-type]

    monkeypatch.setattr(of, method, counted)
    monkeypatch.setattr(driver.controller, "handle", handled)
    return calls


def test_a_step_sets_a_bounded_number_of_target_leaders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, _ = without_preferred(9)
    monkeypatch.setattr(leader_admin, "MAX_CHECKED_PER_STEP", 2)
    monkeypatch.setattr(leader_admin, "MIN_CHECKED_PER_STEP", 1)
    wishes = _count_per_step(driver, monkeypatch, Context, "request_leader")
    driver.feed(ElectPreferredLeaders(90, (), False, 5_000))
    assert len(answer_of(driver.replies[90]).results) == 3
    assert not driver.controller.context.requested_leaders
    # Each becomes a target, and then is withdrawn.
    assert sum(wishes) >= 6
    assert max(wishes) <= 2


def test_a_step_checks_a_bounded_number_of_leaders_of_brokers_in_maintenance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = with_topic(30)
    monkeypatch.setattr(leader_admin, "MAX_CHECKED_PER_STEP", 2)
    monkeypatch.setattr(leader_admin, "MIN_CHECKED_PER_STEP", 1)
    checks = _count_per_step(driver, monkeypatch, LeaderAdmin, "_leads")
    driver.feed(SetMaintenance(90, (1,), True, False, 5_000))
    results = answer_of(driver.replies[90]).results
    assert [result.error for result in results] == [None] * 10
    assert [result.partition for result in results] == sorted(r.partition for r in results)
    # When each loses its leadership, and again for the answer.
    assert sum(checks) >= 20
    assert max(checks) <= 2 + 2
