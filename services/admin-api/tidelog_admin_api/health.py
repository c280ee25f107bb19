"""Liveness and readiness of the gateway."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter

from tidelog.errors import TidelogError
from tidelog_admin_api.bodies.base import AnswerBody, example
from tidelog_admin_api.dependencies import AdminDep
from tidelog_admin_api.problems import READ_PROBLEMS, unavailable

READY_TIMEOUT_MS = 3_000

router = APIRouter(tags=["health"])


class Health(AnswerBody):
    model_config = example(status="alive")

    status: Literal["alive"]


class Readiness(AnswerBody):
    model_config = example(status="ready", controller="127.0.0.1:7401", brokers=3)

    status: Literal["ready"]
    controller: str
    brokers: int


@router.get("/health", responses=READ_PROBLEMS)
async def read_health() -> Health:
    """Reports that the gateway runs, without a request to another service."""
    return Health(status="alive")


@router.get("/ready", responses=READ_PROBLEMS)
async def read_readiness(admin: AdminDep) -> Readiness:
    """Checks that a broker and the active controller answer the gateway."""
    waits_for = "no broker answered"
    try:
        async with asyncio.timeout(READY_TIMEOUT_MS / 1000):
            cluster = await admin.describe_cluster()
            waits_for = "the active controller did not answer"
            await admin.describe_throttle()
    except TimeoutError:
        raise unavailable("NOT_READY", f"{waits_for} within {READY_TIMEOUT_MS} ms") from None
    except TidelogError as error:
        raise unavailable("NOT_READY", f"{waits_for}: {error.message}") from error
    address = cluster.controller.address if cluster.controller else ""
    return Readiness(status="ready", controller=address, brokers=len(cluster.brokers))
