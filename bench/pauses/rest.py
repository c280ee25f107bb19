"""The largest and the most expensive requests to the gateway: each path that is read, as its own
description names them, and the bodies that take longest to read."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

from bench.pauses.probing import probing
from bench.pauses.requests import LARGE_TOPIC, SMALL_TOPIC, WIDE_PARTITIONS, WIDE_TOPIC
from bench.pauses.run import SETTLED_S, Pause

ANSWER_TIMEOUT_S = 60.0
# Just within what the gateway takes.
_VALUES = 49_000
_BODY_BYTES = (2 << 20) - 1_000
_PLACES = {"topic": WIDE_TOPIC, "partition": "0", "broker_id": "1", "operation_id": "op-1"}
_STREAMS = ("/v1/events/stream",)


class RestCase(NamedTuple):
    """`body` None: GET."""

    path: str
    body: bytes | None = None

    @property
    def name(self) -> str:
        method = "GET" if self.body is None else f"POST {len(self.body):,} bytes to"
        return f"{method} {self.path}"


def reads(openapi: dict[str, Any]) -> Iterator[RestCase]:
    """Every path that can be read, with the largest page."""
    for path, methods in openapi["paths"].items():
        described = methods.get("get")
        if described is None or path in _STREAMS:
            continue
        queries = {p["name"] for p in described.get("parameters", ()) if p["in"] == "query"}
        largest = {"page_size": "1000", "max_records": "1000", "max_bytes": str(2 << 20)}
        asked = {name: value for name, value in largest.items() if name in queries}
        filled = path.format(**{name: _PLACES.get(name, "1") for name in _placeholders(path)})
        yield RestCase(filled + (f"?{urlencode(asked)}" if asked else ""))
    for encoding in ("json", "base64"):
        query = urlencode({"offset": 0, "max_records": 1000, "max_bytes": 2 << 20})
        for topic in (SMALL_TOPIC, LARGE_TOPIC):
            yield RestCase(f"/v1/topics/{topic}/partitions/0/records?{query}&encoding={encoding}")


def _placeholders(path: str) -> Iterator[str]:
    for part in path.split("{")[1:]:
        yield part.partition("}")[0].partition(":")[0]


def writes() -> Iterator[RestCase]:
    to_small = f"/v1/topics/{SMALL_TOPIC}/records"
    header = {"key": "k", "value": "v"}
    for records in (
        [{"value": "v", "headers": [header] * 12}] * 1_000,
        [{"value": [1] * _VALUES}],
        [{"value": "x" * 700}] * 1_000,
        [
            {
                "value": base64.b64encode(bytes(_BODY_BYTES // 3)).decode(),
                "value_encoding": "base64",
            }
        ],
        [{"value": "\u1234" * (_BODY_BYTES // 6)}],
    ):
        yield RestCase(to_small, json.dumps({"records": records}).encode())
    moves = [
        {"topic": WIDE_TOPIC, "partition": number, "target": [1]}
        for number in range(WIDE_PARTITIONS)
    ]
    yield RestCase("/v1/reassignments?dry_run=true", json.dumps({"moves": moves}).encode())
    assigned = {"topic": "pauses-new", "assignment": [[1]] * WIDE_PARTITIONS}
    yield RestCase("/v1/topics?dry_run=true", json.dumps(assigned).encode())


async def of_gateway(url: str, rounds: int) -> AsyncIterator[Pause]:
    openapi = json.loads((await _answer(url, RestCase("/openapi.json")))[1])
    async with probing(url) as probe:
        for case in (*reads(openapi), *writes()):
            status, seconds = 0, []
            for _ in range(rounds):
                began = time.monotonic()
                status, _ = await _answer(url, case)
                await asyncio.sleep(SETTLED_S)
                await probe.next()
                seconds.append(probe.longest_s(began))
            yield Pause("gateway", case.name, tuple(seconds), str(status))


async def _answer(url: str, case: RestCase) -> tuple[int, bytes]:
    def ask() -> tuple[int, bytes]:
        request = urllib.request.Request(f"{url}{case.path}", data=case.body)
        if case.body is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    return await asyncio.to_thread(ask)
