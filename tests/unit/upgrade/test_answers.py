"""Which answers between two releases are wrong."""

from __future__ import annotations

import pytest

from tidelog.cli.exit_status import ExitStatus
from upgrade.commands import Expected, judge
from upgrade.interfaces import judge_methods
from upgrade.mixed_cluster import TRACEBACK, Ended

OLD, NEW = "0.1.0", "0.2.0"
AT_OLD, AT_NEW = "a:1", "a:2"
VERSIONS = {AT_OLD: OLD, AT_NEW: NEW}


def wrong_methods(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]]) -> list[str]:
    return [address for address, _ in judge_methods({OLD: old, NEW: new}, VERSIONS)]


def everywhere(**statuses: str) -> dict[str, dict[str, str]]:
    return {AT_OLD: dict(statuses), AT_NEW: dict(statuses)}


def test_rejections_and_streams_that_last_are_right() -> None:
    statuses = everywhere(Create="INVALID_ARGUMENT: no name", Watch="DEADLINE_EXCEEDED: ")
    assert wrong_methods(statuses, statuses) == []


def test_a_method_that_only_the_newer_release_has_is_unimplemented_at_the_older() -> None:
    new = {AT_OLD: {"Level": "UNIMPLEMENTED: "}, AT_NEW: {"Level": "OK"}}
    assert wrong_methods(everywhere(Create="OK"), new) == []


def test_a_service_of_which_no_method_was_called_is_wrong() -> None:
    new = {AT_OLD: {}, AT_NEW: {"Create": "OK"}}
    assert wrong_methods(everywhere(Create="OK"), new) == [AT_OLD]


def test_a_service_that_fails_for_the_other_release_is_wrong() -> None:
    old = {AT_OLD: {"Create": "OK"}, AT_NEW: {"Create": "INTERNAL: KeyError"}}
    assert wrong_methods(old, everywhere(Create="OK")) == [AT_NEW]


def test_a_method_that_a_service_has_for_its_own_release_alone_is_wrong() -> None:
    new = {AT_OLD: {"Create": "UNIMPLEMENTED: "}, AT_NEW: {"Create": "OK"}}
    assert wrong_methods(everywhere(Create="OK"), new) == [AT_OLD]


@pytest.mark.parametrize(
    ("status", "output", "is_wrong"),
    [
        (0, "created sea", False),
        (1, "created sea", True),
        (0, "made it", True),
        (0, f"created sea\n{TRACEBACK}", True),
        (0, "created sea, internal error: KeyError", True),
    ],
)
def test_a_command_has_its_status_its_phrase_and_no_traceback(
    status: int, output: str, is_wrong: bool
) -> None:
    ended = Ended("tidelog topics create sea", status, output, output)
    expected = Expected(("topics", "create", "sea"), (ExitStatus.DONE,), "created")
    assert bool(judge(ended, expected)) == is_wrong
