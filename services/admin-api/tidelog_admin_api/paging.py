"""Pages of lists.

A token holds the key of the last item on the previous page. Items that are added or removed
between pages do not make other items repeat or disappear.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from typing import Annotated, NamedTuple

from fastapi import Depends, Query

from tidelog import request_bounds
from tidelog.model import MAX_INT32
from tidelog_admin_api.bodies.base import MIN_INT32, Item, documented
from tidelog_admin_api.problems import invalid

MAX_TOKEN_LENGTH = 1_024

# The sort key of a list.
Key = tuple[str | int, ...]


class Paging(NamedTuple):
    page_size: int
    page_token: str


def paging_of(
    page_size: Annotated[
        int,
        Query(
            ge=MIN_INT32,
            le=MAX_INT32,
            json_schema_extra=documented(minimum=0),
            description="maximum number of items; more than 1,000 counts as 1,000, and 0 as 100",
        ),
    ] = request_bounds.DEFAULT_PAGE_SIZE,
    page_token: Annotated[
        str,
        Query(
            max_length=MAX_TOKEN_LENGTH,
            description="next_page_token of the previous page; default: the first page",
        ),
    ] = "",
) -> Paging:
    return Paging(request_bounds.page_size(page_size), page_token)


PagingQuery = Annotated[Paging, Depends(paging_of)]


def page_of(
    name: str, items: Iterable[Item], key: Callable[[Item], Key], paging: Paging
) -> tuple[list[Item], str]:
    """Returns a page of items in the order of `key`, and the token of the next page.

    - `name`: the name of the list; tokens of other lists are rejected
    """
    ordered = sorted(items, key=key)
    if paging.page_token:
        after = _decode(name, paging.page_token)
        try:
            ordered = [item for item in ordered if key(item) > after]
        except TypeError:
            raise _bad_token(name) from None
    page = ordered[: paging.page_size]
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
        f"page_token is not from a page of {name}; pass the next_page_token of the previous page, "
        "or omit it for the first page"
    )
