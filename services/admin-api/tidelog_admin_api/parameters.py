"""Parameters that several operations have.

Their ranges are those of the wire format. The cluster rejects other invalid values, with the
same messages as for gRPC and the CLI.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator

from tidelog.client.controller_calls import DEFAULT_TIMEOUT_MS
from tidelog.model import MAX_INT32
from tidelog.request_bounds import MAX_TIMEOUT_MS, check_timeout
from tidelog_admin_api.bodies.base import MAX_INT64, MIN_INT32, documented
from tidelog_admin_api.problems import invalid

MAX_NAME_LENGTH = 255
# Values of a parameter that can be repeated.
MAX_QUERY_ENTRIES = 100
DEFAULT_EVENTS = 100
MAX_EVENTS = 1_000


def _timeout(timeout_ms: int) -> int:
    check_timeout(timeout_ms)
    return timeout_ms


TopicName = Annotated[
    str,
    Path(
        min_length=1, max_length=MAX_NAME_LENGTH, description="name of the topic", examples=["sea"]
    ),
]
PartitionNumber = Annotated[
    int, Path(ge=0, le=MAX_INT32, description="number of the partition, from 0", examples=[0])
]
BrokerId = Annotated[
    int,
    Path(
        ge=MIN_INT32,
        le=MAX_INT32,
        json_schema_extra=documented(minimum=0),
        description="id of the broker",
        examples=[1],
    ),
]
DryRun = Annotated[
    bool,
    Query(description="true: check the request and return its effects without any change"),
]
TimeoutMs = Annotated[
    int,
    Query(
        ge=MIN_INT32,
        le=MAX_INT32,
        json_schema_extra=documented(minimum=1, maximum=MAX_TIMEOUT_MS),
        description="how long to wait for the result, in milliseconds; a change that was started "
        "continues after that",
    ),
    AfterValidator(_timeout),
]
USUAL_TIMEOUT_MS = DEFAULT_TIMEOUT_MS

# Parameters of queries about the whole cluster or a part of it.
TopicQuery = Annotated[
    str, Query(max_length=MAX_NAME_LENGTH, description="only this topic; default: all topics")
]
PartitionQuery = Annotated[
    int | None,
    Query(ge=0, le=MAX_INT32, description="only this partition of the topic; default: all"),
]
BrokerQuery = Annotated[
    int | None, Query(ge=0, le=MAX_INT32, description="only this broker; default: all brokers")
]
# Parameters of queries for events.
SinceMs = Annotated[
    int,
    Query(
        ge=0,
        le=MAX_INT64,
        description="only events since then, in milliseconds since 1970; 0: all known events",
    ),
]
BeforeMs = Annotated[
    int | None,
    Query(ge=0, le=MAX_INT64, description="only events before then, in milliseconds since 1970"),
]
EventLimit = Annotated[
    int,
    Query(ge=1, le=MAX_EVENTS, description="maximum number of events; the newest are returned"),
]


def require_topic(topic: str, partition: object) -> None:
    """Raises `ProblemError` for a partition without its topic."""
    if partition is not None and not topic:
        raise invalid("partition is given without its topic; give both")
