"""JSON documents of operations, for `--json`. Their names are those of admin.proto and the REST
gateway; fields are only ever added. Pure functions."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.admin_messages import (
        AcceptedOperation,
        LeaderChange,
        Move,
        MoveProgress,
        Plan,
    )
    from tidelog.errors import TidelogError

Document = dict[str, Any]


def move_document(move: Move) -> Document:
    return {
        "topic": move.topic,
        "topic_id": move.topic_id,
        "partition": move.partition,
        "original": move.original,
        "target": move.target,
    }


def plan_document(plan: Plan) -> Document:
    return asdict(plan) | {"moves": [move_document(move) for move in plan.moves]}


def begun_document(begun: AcceptedOperation, *, dry_run: bool) -> Document:
    operation = begun.operation
    return {
        "dry_run": dry_run,
        "operation": None if operation is None else asdict(operation),
        "plan": plan_document(begun.plan),
    }


def progress_document(progress: MoveProgress) -> Document:
    return asdict(progress) | {"move": move_document(progress.move)}


def leader_document(change: LeaderChange) -> Document:
    return asdict(replace(change, error=None)) | {"error": error_document(change.error)}


def error_document(error: TidelogError | None) -> Document | None:
    if error is None:
        return None
    return {
        "code": error.code.name,
        "message": error.message,
        "retriable": error.retriable,
        "outcome_unknown": error.outcome_unknown,
    }
