"""Bodies of operations: requests, plans, progress, and the bandwidth limit of moves."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict, get_args

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from tidelog.request_bounds import MAX_MOVES_PER_REQUEST
from tidelog_admin_api.bodies.base import (
    MAX_INT64,
    MIN_INT64,
    AnswerBody,
    BrokerId,
    OperationId,
    PartitionNumber,
    RequestBody,
    TopicName,
    documented,
    whole,
)

MAX_REPLICAS = 1_000

OperationKind = Literal[
    "reassignment",
    "rebalance",
    "brokers_add",
    "brokers_remove",
    "set_replication_factor",
    "reversal",
]
OperationState = Literal["running", "cancelling", "done", "cancelled", "failed"]
MoveState = Literal["waiting", "active", "done", "dropped"]


def _one_of(words: object) -> str:
    """Returns a description that lists the words of a literal.

    The field itself is a string, since services of a newer version may use other words.
    """
    return f"one of {', '.join(get_args(words))}"


_MOVE: JsonDict = {
    "topic": "sea",
    "topic_id": "",
    "partition": 0,
    "original": [1, 2, 3],
    "target": [4, 2, 3],
}
_PLAN: JsonDict = {
    "moves": [_MOVE],
    "move_count": 1,
    "replicas_added": 1,
    "leaders_changed": 1,
    "minimum_replicas_added": None,
    "brokers": [
        {
            "broker_id": 4,
            "replicas_before": 0,
            "replicas_after": 1,
            "leaders_before": 0,
            "leaders_after": 1,
        }
    ],
    "warnings": [],
    "digest": "9f86d081884c7d659a2feaa0c55ad015",
}
_OPERATION: JsonDict = {
    "operation_id": "grow-2026-01",
    "kind": "reassignment",
    "state": "running",
    "reason": "",
    "request": '{"kind": "reassignment"}',
    "requested_by": "ann",
    "requested_from": "127.0.0.1:52114",
    "requested_at_ms": 1_767_225_600_000,
    "ended_at_ms": 0,
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "progress": {
        "moves": 1,
        "moves_done": 0,
        "moves_active": 1,
        "moves_dropped": 0,
        "replicas_to_add": 1,
        "replicas_added": 0,
        "estimated_end_ms": 1_767_225_720_000,
        "bytes_to_copy": 1_200_000_000,
        "bytes_copied": 400_000_000,
        "bytes_per_second": 20_000_000,
        "moves_unmeasured": 0,
    },
    "revision": 4711,
}


class MoveRequest(RequestBody):
    """New replicas for one partition, or its present replicas in another order."""

    topic: TopicName
    partition: PartitionNumber
    target: Annotated[
        list[BrokerId],
        Field(
            max_length=MAX_REPLICAS,
            json_schema_extra=documented(minItems=1),
            description="the replicas after, distinct; the first is the preferred leader",
            examples=[[4, 2, 3]],
        ),
    ]
    original: list[BrokerId] = Field(
        default_factory=list,
        max_length=MAX_REPLICAS,
        description="where given, refused unless the partition still has these replicas, so that "
        "the moves of a dry run are made exactly as shown",
        examples=[[1, 2, 3]],
    )
    topic_id: Annotated[
        str,
        Field(
            max_length=64,
            description="where given, refused unless the topic still has this id",
            examples=[""],
        ),
    ] = ""


class OperationArguments(TypedDict):
    operation_id: str
    dry_run: bool
    expected_plan: str


class OperationRequest(RequestBody):
    """Fields of every request that begins an operation."""

    operation_id: OperationId | None = None
    expected_plan: Annotated[
        str,
        Field(
            max_length=64,
            description="where given, the digest of the plan that a dry run showed: refused "
            "unless exactly that would be done",
            examples=[""],
        ),
    ] = ""

    def arguments(self, *, dry_run: bool) -> OperationArguments:
        """Returns the arguments that all methods of the client share which begin an operation."""
        return {
            "operation_id": self.operation_id or "",
            "dry_run": dry_run,
            "expected_plan": self.expected_plan,
        }


class ReassignRequest(OperationRequest):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "moves": [{"topic": "sea", "partition": 0, "target": [4, 2, 3]}],
                    "operation_id": "grow-2026-01",
                }
            ]
        }
    )

    moves: Annotated[
        list[MoveRequest],
        Field(
            max_length=MAX_MOVES_PER_REQUEST,
            json_schema_extra=documented(minItems=1),
            description="each partition once",
        ),
    ]


class Move(AnswerBody):
    topic: str
    topic_id: str
    partition: int
    original: list[int] = Field(description="replicas before, the first preferred")
    target: list[int] = Field(description="replicas after, the first preferred")


class BrokerShare(AnswerBody):
    """The load of a broker before and after a plan."""

    broker_id: int
    replicas_before: int
    replicas_after: int
    leaders_before: int = Field(description="partitions that prefer it as their leader")
    leaders_after: int


class Plan(AnswerBody):
    """The moves of an operation and their effects."""

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"examples": [_PLAN]})

    moves: list[Move] = Field(
        description="all of them in a dry run; else none, and the operation's moves are a "
        "resource of their own"
    )
    move_count: int
    replicas_added: int = Field(description="replicas that are copied to a broker that had none")
    leaders_changed: int = Field(description="partitions whose preferred leader changes")
    minimum_replicas_added: int | None = Field(
        description="the fewest replicas that any plan would have to copy to balance as well; "
        "null for moves by hand"
    )
    brokers: list[BrokerShare]
    warnings: list[str] = Field(description="what is allowed, and perhaps not meant")
    digest: str = Field(
        description="as expected_plan of the request that is to carry this plan out and no other"
    )


class Progress(AnswerBody):
    moves: int
    moves_done: int
    moves_active: int
    moves_dropped: int
    replicas_to_add: int
    replicas_added: int
    estimated_end_ms: int = Field(
        description="milliseconds since 1970, when the last move will be done if the rest goes as "
        "fast; 0: nobody can tell yet"
    )
    bytes_to_copy: int
    bytes_copied: int
    bytes_per_second: int = Field(description="lately; 0: nothing comes, or nobody can tell")
    moves_unmeasured: int = Field(
        description="moves that the sums of bytes leave out, because no leader has told of them"
    )


class Operation(AnswerBody):
    """A change that takes time. It continues when another controller becomes active."""

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"examples": [_OPERATION]})

    operation_id: str
    kind: str = Field(description=_one_of(OperationKind))
    state: str = Field(description=_one_of(OperationState))
    reason: str = Field(
        description="why it failed or was cancelled, and by whom; while it runs, what it waits for"
    )
    request: str = Field(description="what was asked, as JSON, for a person")
    requested_by: str
    requested_from: str
    requested_at_ms: int = Field(description="milliseconds since 1970")
    ended_at_ms: int = Field(description="milliseconds since 1970; 0: it has not ended")
    trace_id: str
    progress: Progress
    revision: int = Field(description="as the ETag of the operation")


# The name is part of the OpenAPI document; the client calls it AcceptedOperation.
class BegunOperation(AnswerBody):
    """The operation and its plan, or in a dry run the plan alone."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={"examples": [{"operation": _OPERATION, "plan": _PLAN}]},
    )

    operation: Operation | None = Field(description="null in a dry run")
    plan: Plan


class CancelledOperation(AnswerBody):
    """The operation, or in a dry run the moves that would be reverted."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"operation": {**_OPERATION, "state": "cancelling"}, "plan": None}]
        }
    )

    operation: Operation | None = Field(description="null in a dry run")
    plan: Plan | None = Field(description="of a dry run: the moves under way, which would go back")


class MoveProgress(AnswerBody):
    move: Move
    state: str = Field(description=_one_of(MoveState))
    waits_for: list[int] = Field(
        description="of an active move: replicas that are to be in sync and are not"
    )
    bytes_to_copy: int | None = Field(description="null: nothing is copied, or nobody has told")
    bytes_copied: int | None


class OperationPage(AnswerBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [_OPERATION], "next_page_token": ""}]}
    )

    items: list[Operation]
    next_page_token: str = Field(description="empty: this is the last page")


class MoveProgressPage(AnswerBody):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "items": [
                        {
                            "move": _MOVE,
                            "state": "active",
                            "waits_for": [4],
                            "bytes_to_copy": 1_200_000_000,
                            "bytes_copied": 400_000_000,
                        }
                    ],
                    "next_page_token": "",
                }
            ]
        }
    )

    items: list[MoveProgress]
    next_page_token: str = Field(description="empty: this is the last page")


_BOUND = (
    "what each broker may send to replicas that are added by moves, and what each may receive as "
    "such; null: without bound"
)


Rate = Annotated[
    int,
    Field(ge=MIN_INT64, le=MAX_INT64, json_schema_extra=documented(minimum=1_024)),
    BeforeValidator(whole),
]


class ThrottleRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"bytes_per_second": 20_000_000}]})

    bytes_per_second: Rate | None = Field(description=f"{_BOUND}. At least 1,024")


class Throttle(AnswerBody):
    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={"examples": [{"bytes_per_second": 20_000_000, "revision": 412}]},
    )

    bytes_per_second: int | None = Field(description=_BOUND)
    revision: int = Field(description="as the ETag; 0: it was never set")
