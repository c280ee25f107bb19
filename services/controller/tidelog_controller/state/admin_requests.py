"""What administrators ask of the controller's core, besides what `events` has. Plain values;
`admin.proto` documents the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Asker(NamedTuple):
    """Who asks, as they say, and from which address; empty: not known."""

    name: str = ""
    address: str = ""


NOBODY = Asker()
Assignment = tuple[tuple[int, ...], ...]


class AlterTopicConfig(NamedTuple):
    """`trace_id`, here and below: of the request's W3C trace context; empty: none."""

    request_id: int
    topic: str
    topic_id: str
    changed: Mapping[str, str]
    unset: tuple[str, ...]
    expected_revision: int
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    asker: Asker = NOBODY


class AddPartitions(NamedTuple):
    """`partitions`: in all."""

    request_id: int
    topic: str
    topic_id: str
    partitions: int
    assignment: Assignment
    expected_revision: int
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    asker: Asker = NOBODY


class RemovePartitions(NamedTuple):
    """`partitions`: that are left."""

    request_id: int
    topic: str
    topic_id: str
    partitions: int
    confirm_topic: str
    expected_revision: int
    dry_run: bool
    timeout_ms: int
    trace_id: str = ""
    asker: Asker = NOBODY
