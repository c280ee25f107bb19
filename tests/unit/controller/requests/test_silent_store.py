"""Requests that the metadata store never answers: each ends at its timeout and needs no wakeup
afterwards.
"""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog_controller.requests.request_checks import DEFAULT_TIMEOUT_MS
from tidelog_controller.state.admin_answers import LeadersAnswer
from tidelog_controller.state.admin_requests import (
    AddPartitions,
    AlterTopicConfig,
    BeginOperation,
    CancelOperation,
    MoveLeaders,
    Rebalancing,
    RemovePartitions,
    SetMaintenance,
    SetThrottle,
)
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import AdminRequest, CreateTopic, DeleteTopic
from unit.controller.operated import by_hand, with_topic

REQUEST = 1_000

REQUESTS: dict[str, AdminRequest] = {
    "create": CreateTopic(REQUEST, "new", 1, 1, {}, dry_run=False, timeout_ms=0),
    "delete": DeleteTopic(REQUEST, "t", "", 0),
    "config": AlterTopicConfig(REQUEST, "t", "", {"retention_ms": "60000"}, (), 0, False, 0),
    "add partitions": AddPartitions(REQUEST, "t", "", 5, (), 0, dry_run=False, timeout_ms=0),
    "remove partitions": RemovePartitions(REQUEST, "t", "", 1, "t", 0, False, 0),
    "begin": BeginOperation(REQUEST, Rebalancing(), "another", dry_run=False),
    "cancel": CancelOperation(REQUEST, "op", 0, dry_run=False),
    "throttle": SetThrottle(REQUEST, 5_000, 0, dry_run=False),
    "maintenance": SetMaintenance(REQUEST, (1,), True, False, 0),
    "leaders": MoveLeaders(REQUEST, ((TopicPartition("t", 2), 2),), False, 0),
}


def is_late(reply: AdminReply) -> bool:
    errors = [reply.error]
    if isinstance(reply.answer, LeadersAnswer):
        errors += [result.error for result in reply.answer.results]
    return any(error and error.code is ErrorCode.REQUEST_TIMED_OUT for error in errors)


@pytest.mark.parametrize("request_of", REQUESTS)
def test_a_request_without_an_answer_from_the_store_ends_at_its_timeout(request_of: str) -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    driver.hold_transactions = True
    driver.feed(REQUESTS[request_of])
    driver.pass_time(DEFAULT_TIMEOUT_MS - 1)
    assert REQUEST not in driver.replies
    driver.pass_time(2)
    assert is_late(driver.replies[REQUEST])
