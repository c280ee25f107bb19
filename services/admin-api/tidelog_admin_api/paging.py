"""Pages of lists.

A token holds the key of the last item on the previous page. Items that are added or removed
meanwhile cause no other item to be repeated or skipped.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from typing import Annotated, Generic, NamedTuple, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel, Field

from tidelog import request_bounds
from tidelog.model import MAX_INT32
from tidelog_admin_api.bodies.base import MIN_INT32, documented
from tidelog_admin_api.problems import invalid

MAX_TOKEN_LENGTH = 1_024

# The sort key of a list.
Key = tuple[str | int, ...]
Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    items: list[Item]
    next_page_token: str = Field(
        description="the page_token of the next page; empty: this was the last"
    )


class Paging(NamedTuple):
    page_size: int
    page_token: str


def paging(
    page_size: Annotated[
        int,
        Query(
            ge=MIN_INT32,
            le=MAX_INT32,
            json_schema_extra=documented(minimum=0),
            description="items on the page, at most; more than 1,000 counts as 1,000, and 0 as 100",
        ),
    ] = request_bounds.DEFAULT_PAGE_SIZE,
    page_token: Annotated[
        str,
        Query(max_length=MAX_TOKEN_LENGTH, description="next_page_token of the page before"),
    ] = "",
) -> Paging:
    return Paging(request_bounds.page_size(page_size), page_token)


PagingQuery = Annotated[Paging, Depends(paging)]


def page_of(
    name: str, items: Iterable[Item], key: Callable[[Item], Key], asked: Paging
) -> tuple[list[Item], str]:
    """Returns the items after the token's in the order of `key`, and the token of the next page.

    - `name`: of the list; a token of another list is rejected
    """
    ordered = sorted(items, key=key)
    if asked.page_token:
        after = _decode(name, asked.page_token)
        try:
            ordered = [item for item in ordered if key(item) > after]
        except TypeError:
            raise _bad_token(name) from None
    page = ordered[: asked.page_size]
    more = len(ordered) > len(page)
    return page, _encode(name, key(page[-1])) if more else ""


def _encode(name: str, key: Key) -> str:
    text = json.dumps([name, *key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(name: str, token: str) -> Key:
    try:
        padded = token + "=" * (-len(token) % 4)
        content = json.loads(base64.b64decode(padded.encode(), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise _bad_token(name) from None
    if not isinstance(content, list) or content[:1] != [name]:
        raise _bad_token(name)
    if not all(isinstance(part, str | int) for part in content):
        raise _bad_token(name)
    return tuple(content[1:])


def _bad_token(name: str) -> Exception:
    return invalid(
        f"page_token is none that a page of {name} gave; pass next_page_token as it was, or "
        "nothing for the first page"
    )
