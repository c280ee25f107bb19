"""The OpenAPI document of FastAPI, with the problem documents that each operation may return."""

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

TITLE = "Tidelog admin API"
DESCRIPTION = """\
Runs a Tidelog cluster: topics, brokers, moves of partitions, leaders, recovery, events.

- Refusals are problem documents (RFC 9457): `detail` says what is wrong, `fix` what to do.
- Fields and parameters that are not known are refused, so that none is passed over; so are
  parameters that are given twice, and bodies where none is taken.
- Changes take `dry_run=true`: all is checked, and the answer is the exact plan.
- What takes long is an operation: 202, with its address in `Location`. An `operation_id` of your
  own makes a repeated request the same operation.
- Topics, operations and the throttle have an `ETag`; `If-Match` makes a change of them rest on what
  was read.
- Lists are paged: pass `next_page_token` as `page_token`.
- `X-Tidelog-Requested-By` says who asks (at most 200 printable characters of ASCII), and
  `traceparent` (W3C) which trace it belongs to; both are kept with every event of what the request
  begins.
"""
TAGS = [
    {"name": "cluster", "description": "The cluster as a whole."},
    {"name": "brokers", "description": "Grow, shrink and maintain the cluster."},
    {"name": "topics", "description": "Create, change and delete topics."},
    {"name": "partitions", "description": "Partitions, and what their replicas hold."},
    {"name": "operations", "description": "Moves of partitions, and how far they have come."},
    {"name": "leaders", "description": "Who leads."},
    {"name": "recovery", "description": "Partitions without a leader, at the price of records."},
    {"name": "events", "description": "What has happened, and what happens."},
    {"name": "explain", "description": "What is wrong, why, and what to do."},
    {"name": "records", "description": "Records, for scripts without gRPC."},
    {"name": "health", "description": "The gateway itself."},
]


def operation_id(route: APIRoute) -> str:
    """Returns the name of the route's function, which is stable."""
    return route.name


def install(app: FastAPI) -> None:
    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # as FastAPI's documentation does it


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    components = document.setdefault("components", {}).setdefault("schemas", {})
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    components.update(schema.pop("$defs", {}))
    components["Problem"] = schema
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
    """Restores examples: FastAPI drops nulls, and with them fields that examples need."""
    extra = model.model_config.get("json_schema_extra")
    if isinstance(extra, dict) and "examples" in extra and model.__name__ in components:
        components[model.__name__]["examples"] = copy.deepcopy(extra["examples"])
