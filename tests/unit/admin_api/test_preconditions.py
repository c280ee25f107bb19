"""If-Match as defined by RFC 9110."""

from __future__ import annotations

import pytest

from tidelog_admin_api.preconditions import ANY_REVISION, etag, expected_revision
from tidelog_admin_api.problems import ProblemError


async def seven() -> int:
    return 7


async def zero() -> int:
    return 0


async def unexpected_read() -> int:
    raise AssertionError("one tag needs no look")


async def test_the_tag_of_a_revision_is_that_revision() -> None:
    assert await expected_revision(etag(412), unexpected_read) == 412


@pytest.mark.parametrize("header", [None, "*", " * "])
async def test_without_a_tag_any_revision_matches(header: str | None) -> None:
    assert await expected_revision(header, unexpected_read) == ANY_REVISION


async def test_of_several_tags_the_current_one_is_compared() -> None:
    assert await expected_revision('"3", "7" ,W/"9"', seven) == 7


@pytest.mark.parametrize("header", ['W/"7"', '"abc"', '"3", "4"', '"07"', f'"{2**63}"'])
async def test_unmatched_tags_are_a_conflict(header: str) -> None:
    with pytest.raises(ProblemError) as raised:
        await expected_revision(header, seven)
    assert raised.value.mapping.status == 412


@pytest.mark.parametrize("header", ["7", '"7', "", '"7" "8"', ","])
async def test_an_invalid_entity_tag_is_malformed(header: str) -> None:
    with pytest.raises(ProblemError) as raised:
        await expected_revision(header, seven)
    assert raised.value.mapping.status == 400


async def test_an_unset_value_has_a_tag_too() -> None:
    assert await expected_revision(etag(0), zero) == ANY_REVISION


async def test_a_value_set_meanwhile_conflicts_with_the_unset_tag() -> None:
    with pytest.raises(ProblemError):
        await expected_revision(etag(0), seven)
