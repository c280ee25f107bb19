"""The OpenAPI document, with the problem documents that each operation may return."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel

from tidelog_admin_api.bodies.base import AnswerBody, RequestBody
from tidelog_admin_api.bodies.problem import Problem
from tidelog_admin_api.bodies.search_bodies import SEARCH_LINES

TITLE = "Tidelog admin API"
DESCRIPTION = """\
Manages a Tidelog cluster: topics, brokers, reassignments, leaders, recovery and events.

- Errors are problem documents (RFC 9457): `detail` says what is wrong. `fix` says what to do, where
  that is more than `detail` says.
- The gateway rejects unknown fields and parameters, repeated parameters, and bodies where none is
  expected. The error lists the valid names.
- Changes accept `dry_run=true`: the gateway checks the request and returns the exact plan.
- Long changes are operations: the answer is 202, and `Location` names the operation. A repeated
  request with the same `operation_id` returns the same operation.
- Topics, operations and the throttle have an `ETag`. With `If-Match`, a change is rejected if the
  resource has changed since it was read.
- Lists are paged: pass `next_page_token` as `page_token`. Pages of records have the paths of the
  `previous` and the `next` one.
- `X-Tidelog-Requested-By` names the requester (at most 200 printable ASCII characters).
  `traceparent` (W3C) names the trace. Every event that the request causes has both.
"""
TAGS = [
    {"name": "cluster", "description": "The state of the whole cluster."},
    {"name": "brokers", "description": "Add, remove and maintain brokers."},
    {"name": "topics", "description": "Create, change and delete topics."},
    {"name": "partitions", "description": "Partitions and their replicas."},
    {"name": "operations", "description": "Reassignments, their progress and their throttle."},
    {"name": "leaders", "description": "Leader elections and leadership transfers."},
    {"name": "recovery", "description": "Unclean elections, which may lose records."},
    {"name": "events", "description": "Past state changes, and a stream of new ones."},
    {"name": "explain", "description": "Problems, their causes and the next steps."},
    {"name": "records", "description": "Write, read and search records without gRPC."},
    {"name": "health", "description": "Liveness and readiness of the gateway."},
]


def operation_id(route: APIRoute) -> str:
    """Returns the name of the route's function, which does not change."""
    return route.name


def install(app: FastAPI) -> None:
    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # as in FastAPI's documentation


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    components = document.setdefault("components", {}).setdefault("schemas", {})
    # FastAPI does not know the bodies that are not JSON documents of a route.
    for body in (Problem, *SEARCH_LINES):
        schema = body.model_json_schema(
            ref_template="#/components/schemas/{model}", mode="serialization"
        )
        for name, inner in schema.pop("$defs", {}).items():
            components.setdefault(name, inner)
        components[body.__name__] = schema
    for unused in ("HTTPValidationError", "ValidationError"):
        components.pop(unused, None)
    for model in (*_below(AnswerBody), *_below(RequestBody)):
        _restore_examples(model, components)
    return document


def _below(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _below(model)


def _restore_examples(model: type[BaseModel], components: dict[str, Any]) -> None:
    """Restores the nulls of examples, which FastAPI drops."""
    extra = model.model_config.get("json_schema_extra")
    if isinstance(extra, dict) and "examples" in extra and model.__name__ in components:
        components[model.__name__]["examples"] = copy.deepcopy(extra["examples"])
