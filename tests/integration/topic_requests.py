"""Every request of the REST gateway that names a topic, generated from its OpenAPI document, so
that a new route is included."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# The topics in the document's examples of request bodies.
EXAMPLE_TOPICS = ("sea", "bay")
# These list topics, or create one.
_OF_NO_TOPIC = "/v1/topics"

Document = Mapping[str, Any]


class TopicRequest(NamedTuple):
    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.params} {self.headers}"


def topic_requests(document: Document, topic: str) -> list[TopicRequest]:
    """All operations with a topic in their path, query or body; each plain, and with each parameter
    that guards a change: `dry_run`, `confirm` and If-Match."""
    return [
        request
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if path != _OF_NO_TOPIC
        for request in _requests(document, path, method.upper(), operation, topic)
    ]


def _requests(
    document: Document, path: str, method: str, operation: Document, topic: str
) -> Iterator[TopicRequest]:
    names = {parameter["name"] for parameter in operation.get("parameters", ())}
    body = _example(document, operation)
    words = json.dumps(body)
    named = any(f'"{known}"' in words for known in EXAMPLE_TOPICS)
    if not ("{topic}" in path or "topic" in names or named):
        return
    for known in EXAMPLE_TOPICS:
        words = words.replace(f'"{known}"', json.dumps(topic))
    in_query = {"topic": topic} if "topic" in names and "{topic}" not in path else {}
    plain = TopicRequest(
        method,
        path.replace("{topic}", topic).replace("{partition}", "0").replace("{offset}", "0"),
        in_query,
        {},
        json.loads(words),
    )
    yield plain
    if "dry_run" in names:
        yield plain._replace(params={**in_query, "dry_run": "true"})
    if "confirm" in names:
        yield plain._replace(params={**in_query, "confirm": topic})
    if isinstance(plain.body, dict) and "confirm" in plain.body:
        yield plain._replace(body={k: v for k, v in plain.body.items() if k != "confirm"})
    if "If-Match" in names:
        yield plain._replace(headers={"If-Match": '"4711"'})


def _example(document: Document, operation: Document) -> Any:
    """The first example of its body; None: it has none."""
    if "requestBody" not in operation:
        return None
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema["examples"][0]
