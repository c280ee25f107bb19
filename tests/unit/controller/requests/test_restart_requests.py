"""Requests to check whether a broker may be restarted."""

from __future__ import annotations

from tidelog_controller.state.admin_answers import RestartAnswer
from tidelog_controller.state.admin_requests import CheckRestart
from unit.controller.driver import Driver
from unit.controller.requests.test_leader_admin import with_topic


def check(driver: Driver, broker: int, size: int = 0, token: str = "") -> RestartAnswer:
    answer = driver.ask(CheckRestart(0, broker, size, token)).answer
    assert isinstance(answer, RestartAnswer)
    return answer


def test_a_restart_is_safe_where_other_replicas_take_over() -> None:
    assert check(with_topic(), 1).safe


def test_a_restart_that_leaves_too_few_in_sync_is_unsafe_with_a_reason() -> None:
    driver = with_topic()
    driver.kill_broker(3)
    driver.watch()
    answer = check(driver, 1)
    assert not answer.safe
    assert all("start broker 3 first" in finding.reason for finding in answer.findings)


def test_the_findings_of_a_restart_come_in_pages() -> None:
    driver = with_topic()
    driver.kill_broker(3)
    driver.watch()
    first = check(driver, 1, size=2)
    rest = check(driver, 1, size=2, token=first.next_page_token)
    assert (len(first.findings), len(rest.findings), rest.next_page_token) == (2, 1, "")
