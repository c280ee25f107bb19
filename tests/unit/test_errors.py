"""Every error is a documented subclass of `TidelogError`, chosen by its code."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import tidelog.client
from tidelog import errors
from tidelog.client import LogTruncatedError
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import LeaderHint, TopicPartition
from tidelog.rpc.wire import error_from_wire, error_to_wire

SUBCLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, TidelogError) and value is not TidelogError
]


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_each_code_has_a_documented_exception_class(
    code: ErrorCode,
) -> None:
    error = TidelogError(code, "what is wrong")
    assert type(error) is not TidelogError, f"{code.name} has no class in tidelog.errors"
    assert type(error).__doc__
    assert (error.code, error.message, str(error)) == (code, "what is wrong", "what is wrong")


@pytest.mark.parametrize("kind", SUBCLASSES, ids=lambda kind: kind.__name__)
def test_each_class_is_exported_by_the_client(kind: type[TidelogError]) -> None:
    assert getattr(tidelog.client, kind.__name__) is kind
    assert kind.__name__ in tidelog.client.__all__


def test_an_error_on_the_wire_has_the_class_of_its_code() -> None:
    sent = TidelogError(ErrorCode.NOT_LEADER, "ask broker 2", LeaderHint(2, 7, "here:1"))
    read = error_from_wire(error_to_wire(sent))
    assert isinstance(read, errors.NotLeaderError)
    assert read.leader == sent.leader


def test_a_deleted_topic_is_an_unknown_topic_too() -> None:
    assert isinstance(TidelogError(ErrorCode.UNKNOWN_TOPIC_ID, ""), errors.UnknownTopicError)


def test_a_truncated_log_is_an_offset_out_of_range() -> None:
    error = LogTruncatedError(TopicPartition("sea", 0), 5, 1, 2)
    assert isinstance(error, errors.OffsetOutOfRangeError)


def test_the_code_determines_whether_the_outcome_is_known_unless_overridden() -> None:
    assert TidelogError(ErrorCode.REQUEST_TIMED_OUT, "").outcome_unknown
    assert not TidelogError(ErrorCode.CLIENT_CLOSED, "").outcome_unknown
    assert not TidelogError(ErrorCode.REQUEST_TIMED_OUT, "", outcome_unknown=False).outcome_unknown
    assert TidelogError(ErrorCode.CLIENT_CLOSED, "", outcome_unknown=True).outcome_unknown


@pytest.mark.parametrize(
    "error",
    [
        TidelogError(ErrorCode.NOT_LEADER, "ask 2", LeaderHint(2, 7, "here:1")),
        TidelogError(ErrorCode.CLIENT_CLOSED, "closed", outcome_unknown=True),
        LogTruncatedError(TopicPartition("sea", 0), 5, 1, 2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_copied_and_pickled(error: TidelogError) -> None:
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)
