"""With `--json` an error is a JSON document too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidelog.cli.exit_status import ClusterUnreachableError, ExitStatus, TimedOutError
from tidelog.cli.json_errors import json_error
from tidelog.errors import ErrorCode, TidelogError
from tidelog.version import installed_version
from unit.cli.conftest import Commands


def error_document(stdout: str) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(stdout)["error"]
    return error


@pytest.mark.parametrize(
    "words", [("topics", "config", "nosuch", "--json"), ("--json", "topics", "config", "nosuch")]
)
def test_a_rejection_is_a_json_document_with_a_readable_message(
    commands: Commands, words: tuple[str, ...]
) -> None:
    result = commands.run(*words)
    assert result.exit_code == ExitStatus.NOT_FOUND
    reported = error_document(result.stdout)
    assert result.stderr == f"error: {reported.pop('message')}\n"
    assert reported == {
        "code": "UNKNOWN_TOPIC_OR_PARTITION",
        "retriable": False,
        "outcome_unknown": False,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("topics", "create"), "Missing argument"),
        (("topics", "create", "bay", "-p", "many"), "--partitions"),
        (("topics", "create", "bay", "-c", "one"), "is not KEY=VALUE"),
        (("topics", "creat", "bay"), "creat"),
        (("leaders", "move", "sea=1"), "TOPIC/PARTITION=BROKER"),
        (("topics", "delete", "sea", "--yes", "--timeout", "nan"), "1 to 300000 ms"),
    ],
)
def test_wrong_usage_is_a_json_document(
    commands: Commands, words: tuple[str, ...], message: str
) -> None:
    result = commands.run(*words, "--json")
    assert result.exit_code == ExitStatus.USAGE
    reported = error_document(result.stdout)
    assert (reported["code"], message in reported["message"]) == ("INVALID_REQUEST", True)


def test_a_missing_confirmation_is_a_json_document(commands: Commands) -> None:
    result = commands.run("topics", "delete", "sea", "--json", input_="no\n", interactive=True)
    assert result.exit_code == ExitStatus.FAILED
    reported = error_document(result.stdout)
    assert (reported["code"], reported["message"]) == ("NOT_CONFIRMED", "Nothing was deleted.")


def test_an_error_is_not_printed_as_a_record(commands: Commands) -> None:
    result = commands.run("consume", "nosuch", "--json")
    assert (result.exit_code, result.stdout) == (ExitStatus.NOT_FOUND, "")
    assert "'nosuch' does not exist" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "retriable", "outcome_unknown"),
    [
        (ClusterUnreachableError("x"), "UNREACHABLE", True, False),
        (TimedOutError("x"), "REQUEST_TIMED_OUT", True, True),
        (TidelogError(ErrorCode.PARTITION_BUSY, "x"), "PARTITION_BUSY", False, False),
        (PermissionError("x"), "OS_ERROR", False, False),
    ],
)
def test_an_error_document_says_whether_to_retry(
    error: Exception, code: str, retriable: bool, outcome_unknown: bool
) -> None:
    document = json_error(error)["error"]
    assert (document["code"], document["retriable"], document["outcome_unknown"]) == (
        code,
        retriable,
        outcome_unknown,
    )


def test_a_deletion_is_conditional_on_the_described_revision(commands: Commands) -> None:
    commands.controller.reject("DeleteTopic", ErrorCode.REVISION_CONFLICT)
    words = ("topics", "delete", "sea", "--expected-revision", "9", "--json")
    stale = commands.run(*words, interactive=True)
    assert error_document(stale.stdout)["code"] == "REVISION_CONFLICT"
    assert "Type its name" not in stale.stderr
    (requested,) = commands.controller.requests["DeleteTopic"]
    assert (requested.dry_run, requested.expected_revision) == (True, 9)


def test_the_version_is_printed(commands: Commands) -> None:
    assert commands.run("--version").stdout == f"tidelog {installed_version()}\n"


@pytest.mark.parametrize(
    "words", [("topics", "list"), ("topics", "describe", "sea"), ("cluster", "describe")]
)
def test_an_unanswered_request_times_out(commands: Commands, words: tuple[str, ...]) -> None:
    for broker in commands.cluster.brokers.values():
        broker.script["metadata"].extend(["hang"] * 10)
    result = commands.run(*words, "--timeout", "0.1", "--json")
    assert result.exit_code == ExitStatus.TIMED_OUT
    assert error_document(result.stdout)["code"] == "REQUEST_TIMED_OUT"
    assert "no answer within 0.1 s" in result.stderr
