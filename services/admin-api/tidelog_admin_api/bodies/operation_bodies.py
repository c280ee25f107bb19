"""Bodies of operations: requests, plans, progress, and the throttle of moves."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict, get_args

from pydantic import BeforeValidator, Field
from pydantic.config import JsonDict

from tidelog.request_bounds import MAX_MOVES_PER_REQUEST
from tidelog_admin_api.bodies.base import (
    MAX_INT64,
    MIN_INT64,
    AnswerBody,
    BrokerId,
    OperationId,
    Page,
    PartitionNumber,
    RequestBody,
    TopicName,
    documented,
    example,
    integral,
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
            description="distinct replicas after the move, the preferred one first",
            examples=[[4, 2, 3]],
        ),
    ]
    original: list[BrokerId] = Field(
        default_factory=list,
        max_length=MAX_REPLICAS,
        description="replicas that the partition has to have; otherwise the request is rejected. "
        "With them, a request carries out exactly the moves of a dry run. Empty: not checked",
        examples=[[1, 2, 3]],
    )
    topic_id: Annotated[
        str,
        Field(
            max_length=64,
            description="id that the topic has to have; otherwise the request is rejected. "
            "Empty: not checked",
            examples=[""],
        ),
    ] = ""


class OperationArguments(TypedDict):
    operation_id: str
    dry_run: bool
    expected_plan: str


class OperationRequest(RequestBody):
    """Fields of every request that starts an operation."""

    operation_id: OperationId | None = None
    expected_plan: Annotated[
        str,
        Field(
            max_length=64,
            description="digest of the plan that a dry run returned; the request is rejected "
            "if its plan differs. Empty: not checked",
            examples=[""],
        ),
    ] = ""

    def arguments(self, *, dry_run: bool) -> OperationArguments:
        """Returns the arguments of every client method that starts an operation."""
        return {
            "operation_id": self.operation_id or "",
            "dry_run": dry_run,
            "expected_plan": self.expected_plan,
        }


class ReassignRequest(OperationRequest):
    model_config = example(
        moves=[{"topic": "sea", "partition": 0, "target": [4, 2, 3]}], operation_id="grow-2026-01"
    )

    moves: Annotated[
        list[MoveRequest],
        Field(
            max_length=MAX_MOVES_PER_REQUEST,
            json_schema_extra=documented(minItems=1),
            description="moves, at most one for each partition",
        ),
    ]


class Move(AnswerBody):
    topic: str
    topic_id: str
    partition: int
    original: list[int] = Field(description="replicas before the move, the preferred one first")
    target: list[int] = Field(description="replicas after the move, the preferred one first")


class BrokerShare(AnswerBody):
    """The load of a broker before and after a plan."""

    broker_id: int
    replicas_before: int
    replicas_after: int
    leaders_before: int = Field(description="partitions whose preferred replica the broker has")
    leaders_after: int = Field(description="the same number after the plan")


class Plan(AnswerBody):
    """The moves of an operation and their effects."""

    model_config = example(**_PLAN)

    moves: list[Move] = Field(
        description="all moves in a dry run; otherwise empty, and "
        "/v1/operations/{operation_id}/moves lists them"
    )
    move_count: int
    replicas_added: int = Field(description="replicas that are copied to a broker without one")
    leaders_changed: int = Field(description="number of partitions whose preferred replica changes")
    minimum_replicas_added: int | None = Field(
        description="smallest number of replicas that any equally balanced plan copies; null: "
        "the request names the moves"
    )
    brokers: list[BrokerShare]
    warnings: list[str] = Field(description="valid but unusual properties of the plan, for people")
    digest: str = Field(
        description="digest of the moves; the `expected_plan` of a request for exactly this plan"
    )


class Progress(AnswerBody):
    moves: int
    moves_done: int
    moves_active: int
    moves_dropped: int
    replicas_to_add: int
    replicas_added: int
    estimated_end_ms: int = Field(
        description="estimated end of the last move, in milliseconds since 1970; 0: no estimate"
    )
    bytes_to_copy: int
    bytes_copied: int
    bytes_per_second: int = Field(description="recent rate; 0: nothing is copied, or not known")
    moves_unmeasured: int = Field(
        description="moves that the sums of bytes lack, because no leader has reported their bytes"
    )


class Operation(AnswerBody):
    """A change that takes time. It continues when another controller becomes active."""

    model_config = example(**_OPERATION)

    operation_id: str
    kind: str = Field(description=_one_of(OperationKind))
    state: str = Field(description=_one_of(OperationState))
    reason: str = Field(
        description="why it failed or was cancelled, and by whom; while it runs, what it waits for"
    )
    request: str = Field(description="the request as JSON, for people")
    requested_by: str
    requested_from: str
    requested_at_ms: int = Field(description="milliseconds since 1970")
    ended_at_ms: int = Field(description="milliseconds since 1970; 0: not ended")
    trace_id: str
    progress: Progress
    revision: int = Field(description="revision of the operation, the same as in the ETag")


# The name is part of the OpenAPI document; the client calls it AcceptedOperation.
class BegunOperation(AnswerBody):
    """The operation and its plan, or in a dry run the plan alone."""

    model_config = example(operation=_OPERATION, plan=_PLAN)

    operation: Operation | None = Field(description="null in a dry run")
    plan: Plan


class CancelledOperation(AnswerBody):
    """The operation, or in a dry run the moves that would be reverted."""

    model_config = example(operation={**_OPERATION, "state": "cancelling"}, plan=None)

    operation: Operation | None = Field(description="null in a dry run")
    plan: Plan | None = Field(
        description="in a dry run: the active moves, which would be reverted; otherwise null"
    )


class MoveProgress(AnswerBody):
    move: Move
    state: str = Field(description=_one_of(MoveState))
    waits_for: list[int] = Field(
        description="replicas that an active move waits for, because they are not in sync yet"
    )
    bytes_to_copy: int | None = Field(description="null: nothing is copied, or not reported")
    bytes_copied: int | None


class OperationPage(Page[Operation]):
    model_config = example(items=[_OPERATION], next_page_token="")


class MoveProgressPage(Page[MoveProgress]):
    model_config = example(
        items=[
            {
                "move": _MOVE,
                "state": "active",
                "waits_for": [4],
                "bytes_to_copy": 1_200_000_000,
                "bytes_copied": 400_000_000,
            }
        ],
        next_page_token="",
    )


_THROTTLE = (
    "bytes per second that moves may send from each broker to added replicas, and as many that "
    "each broker may receive; null: no limit"
)
Rate = Annotated[
    int,
    Field(ge=MIN_INT64, le=MAX_INT64, json_schema_extra=documented(minimum=1_024)),
    BeforeValidator(integral),
]


class ThrottleRequest(RequestBody):
    model_config = example(bytes_per_second=20_000_000)

    bytes_per_second: Rate | None = Field(description=f"{_THROTTLE}. The minimum is 1,024")


class Throttle(AnswerBody):
    model_config = example(bytes_per_second=20_000_000, revision=412)

    bytes_per_second: int | None = Field(description=_THROTTLE)
    revision: int = Field(description="revision, the same as in the ETag; 0: never set")
