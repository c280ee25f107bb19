"""The lines of a search, each of which is a JSON object."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tidelog_admin_api.bodies.base import AnswerBody, example
from tidelog_admin_api.bodies.problem import Failure
from tidelog_admin_api.bodies.record_bodies import RECORD_EXAMPLE, ReadRecord

_CURSOR = "pass it as `cursor`, with the same other parameters, to continue from here"


class SearchMatch(AnswerBody):
    """A record that matches."""

    model_config = example(type="match", record=RECORD_EXAMPLE)

    type: Literal["match"] = "match"
    record: ReadRecord


class SearchSkipped(AnswerBody):
    """Records that the search cannot read."""

    model_config = example(
        type="skipped",
        partition=0,
        first_offset=17,
        next_offset=19,
        error={
            "code": "RECORDS_DAMAGED",
            "message": "the records at offsets 17 to 18 of sea/0 are damaged",
            "grpc_status": "DATA_LOSS",
            "fix": "GET /v1/explain shows where the bytes are kept.",
            "retriable": False,
            "outcome_unknown": False,
        },
    )

    type: Literal["skipped"] = "skipped"
    partition: int
    first_offset: int | None = Field(description="null: all records of the partition")
    next_offset: int | None = Field(
        description="one past the last skipped offset; null: all further records of the partition"
    )
    error: Failure


class _Totals(AnswerBody):
    partition: int = Field(description="the partition that is being scanned")
    first_offset: int = Field(description="begin of the range in this partition")
    next_offset: int = Field(description="the next offset to scan")
    before_offset: int = Field(description="end of the range: the first offset not to scan")
    done: int = Field(description="partitions that are done")
    partitions: int = Field(description="partitions to scan")
    scanned: int = Field(description="records that were scanned")
    scanned_bytes: int = Field(
        description="size of their keys, values and headers; each header counts as 256 bytes more"
    )
    matches: int
    not_examined: int = Field(
        description="scanned records that are too large to be examined, and may match"
    )


class SearchProgress(_Totals):
    """How far the search is; sent twice a second."""

    model_config = example(
        type="progress",
        partition=0,
        first_offset=0,
        next_offset=8_000,
        before_offset=90_000,
        done=0,
        partitions=6,
        scanned=8_000,
        scanned_bytes=720_000,
        matches=1,
        not_examined=0,
        cursor="0:8000",
    )

    type: Literal["progress"] = "progress"
    cursor: str = Field(description=_CURSOR)


class SearchEnd(_Totals):
    """The last line."""

    model_config = example(
        type="end",
        reason="max_matches",
        partition=0,
        first_offset=0,
        next_offset=8_412,
        before_offset=90_000,
        done=0,
        partitions=6,
        scanned=8_412,
        scanned_bytes=757_080,
        matches=100,
        not_examined=0,
        cursor="0:8412",
    )

    type: Literal["end"] = "end"
    reason: Literal[
        "complete",
        "max_matches",
        "max_match_bytes",
        "max_scanned",
        "max_scanned_bytes",
        "max_skipped",
        "max_partitions",
        "timeout",
        "stopping",
    ] = Field(
        description="complete: the whole range was scanned; stopping: the gateway stops; timeout: "
        "`timeout_ms` is over; otherwise the limit that the search reached"
    )
    cursor: str | None = Field(description=f"{_CURSOR}; null: the range is complete")


SearchLine = SearchMatch | SearchSkipped | SearchProgress | SearchEnd
SEARCH_LINES = (SearchMatch, SearchSkipped, SearchProgress, SearchEnd)


def line_schema() -> dict[str, Any]:
    """Returns the schema of a line, which refers to components of the OpenAPI document."""
    return {"oneOf": [{"$ref": f"#/components/schemas/{one.__name__}"} for one in SEARCH_LINES]}
