"""The table of feature levels, ranges of levels, and the distance of releases."""

from __future__ import annotations

import logging

import pytest

from tidelog.client.version_check import VersionCheck
from tidelog.feature_levels import (
    FAR_APART,
    FEATURE_LEVELS,
    FIRST_LEVEL,
    SUPPORTED,
    UNREPORTED,
    LevelRange,
    releases_apart,
    unsupported,
)


def test_levels_follow_each_other_without_gaps() -> None:
    first = FEATURE_LEVELS[0].level
    numbers = [each.level for each in FEATURE_LEVELS]
    assert numbers == list(range(first, first + len(FEATURE_LEVELS)))
    assert (SUPPORTED.oldest, SUPPORTED.newest) == (numbers[0], numbers[-1])


def test_a_process_that_reports_no_levels_supports_the_first_one_alone() -> None:
    assert UNREPORTED.supports(FIRST_LEVEL)
    assert not UNREPORTED.supports(FIRST_LEVEL + 1)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (LevelRange(1, 1), "supports feature level 1: it is too old; start a release that"),
        (LevelRange(3, 4), "feature levels 3 to 4: it is too new; start the release that ran here"),
    ],
)
def test_an_unsupported_level_is_reported_with_both_levels_and_the_remedy(
    levels: LevelRange, expected: str
) -> None:
    reason = unsupported("cluster c", 2, levels, "0.1.0")
    assert reason.startswith("cluster c is at feature level 2, and this process of release 0.1.0")
    assert expected in reason


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("0.1.0", "0.1.7", 0),
        ("0.3.0", "0.1.0", 2),
        ("0.9.0", "1.0.0", FAR_APART),
        ("", "0.1.0", None),
        ("0.1.0", "trunk", None),
    ],
)
def test_releases_are_compared_by_minor_versions(one: str, other: str, apart: int | None) -> None:
    assert releases_apart(one, other) == releases_apart(other, one) == apart


def test_a_client_warns_once_of_a_service_that_is_too_far_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check = VersionCheck("0.3.0")
    with caplog.at_level(logging.WARNING):
        check.compare({"a:1": "0.2.0", "b:1": "0.4.1", "c:1": ""})
        assert caplog.records == []
        check.compare({"a:1": "0.1.0"})
        check.compare({"a:1": "0.1.0"})
    (record,) = caplog.records
    assert "release 0.3.0, and the service at a:1 of release 0.1.0" in record.getMessage()
