"""Paging of lists."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_admin_api.paging import Paging, page_of
from tidelog_admin_api.problems import ProblemError


def pages(names: list[str], size: int) -> list[list[str]]:
    found, token = [], ""
    while True:
        page, token = page_of("topics", names, lambda name: (name,), Paging(size, token))
        found.append(page)
        if not token:
            return found


@given(st.sets(st.text()), st.integers(1, 7))
def test_pages_hold_every_item_once_and_in_order(names: set[str], size: int) -> None:
    listed = pages(list(names), size)
    assert [name for page in listed for name in page] == sorted(names)
    assert all(len(page) == size for page in listed[:-1])


def test_a_deletion_between_pages_skips_no_item() -> None:
    _, token = page_of("topics", ["a", "b", "c", "d"], lambda name: (name,), Paging(2, ""))
    rest, _ = page_of("topics", ["a", "c", "d"], lambda name: (name,), Paging(2, token))
    assert rest == ["c", "d"]


def token_of(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "token",
    [
        "no token",
        "é",
        token_of("{}"),
        token_of('["brokers","a"]'),
        token_of('["topics",5]'),
        token_of('["topics",null]'),
        token_of("[" * 5_000),
    ],
)
def test_an_invalid_page_token_is_rejected(token: str) -> None:
    with pytest.raises(ProblemError) as raised:
        page_of("topics", ["a"], lambda name: (name,), Paging(1, token))
    assert raised.value.mapping.status == 422
