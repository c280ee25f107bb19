"""Conditional changes: ETag and If-Match (RFC 9110, section 13).

An entity tag is the revision of a resource in the metadata store.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Header

from tidelog_admin_api.problems import failed_precondition, malformed

IF_MATCH = "If-Match"
ANY_REVISION = 0
MAX_TAGS = 100
_ENTITY_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_LIST = re.compile(rf"\s*(?:,\s*)*{_ENTITY_TAG}\s*(?:,\s*(?:{_ENTITY_TAG}\s*)?)*")
_TAG = re.compile(_ENTITY_TAG)
_REVISION = re.compile(r'"([1-9][0-9]{0,18}|0)"')
_MAX_REVISION = 2**63 - 1

IfMatch = Annotated[
    str | None,
    Header(
        alias=IF_MATCH,
        max_length=8_192,
        description='ETag that was read, such as "412"; the change is rejected with status 412 if '
        "the resource has changed since",
        examples=['"412"'],
    ),
]

# Declared by routes whose answer has an ETag.
TAGGED: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK.value: {
        "headers": {
            "ETag": {
                "description": "revision of the resource, for If-Match",
                "schema": {"type": "string"},
                "example": '"412"',
            }
        }
    }
}


def etag(revision: int) -> str:
    return f'"{revision}"'


async def expected_revision(if_match: str | None, current: Callable[[], Awaitable[int]]) -> int:
    """Returns the revision that the cluster has to check, or ANY_REVISION for no check.

    Calls `current` only for several tags or for revision 0. Raises `ProblemError`.
    """
    revisions = _revisions(if_match)
    if revisions is None:
        return ANY_REVISION
    # A resource that was never set has revision 0. For the cluster, 0 means any revision.
    if len(revisions) == 1 and revisions[0] != ANY_REVISION:
        return revisions[0]
    now = await current()
    if now not in revisions:
        raise _changed(if_match)
    return now


def _revisions(if_match: str | None) -> list[int] | None:
    """Returns the revisions in If-Match, or None if all match. Raises `ProblemError`.

    Weak tags and tags that are not a revision never match.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    if not _LIST.fullmatch(if_match):
        raise malformed(
            f"If-Match: {if_match[:100]} is not an entity tag; give the ETag that was read, in "
            'quotes, such as "412"'
        )
    tags = _TAG.findall(if_match)
    if len(tags) > MAX_TAGS:
        raise malformed(f"If-Match has {len(tags)} entity tags; give at most {MAX_TAGS}")
    found = (_REVISION.fullmatch(tag) for tag in tags)
    revisions = [int(match[1]) for match in found if match]
    revisions = [revision for revision in revisions if revision <= _MAX_REVISION]
    if not revisions:
        raise _changed(if_match)
    return revisions


def _changed(if_match: str | None) -> Exception:
    return failed_precondition(
        f"If-Match: {(if_match or '')[:100]} is not the current entity tag; read the resource again"
    )
