"""The largest and the most expensive requests to the gateway: each readable path of its OpenAPI
document, and the bodies that take longest to parse."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from bench.pauses.requests import LARGE_TOPIC, SMALL_TOPIC, WIDE_PARTITIONS, WIDE_TOPIC
from bench.pauses.run import ALL, ALL_ROUNDS, REJECTED, Bounds, Pause, Selection, measured
from tidelog_runtime.local.cluster import LocalCluster

ANSWER_TIMEOUT_S = 60.0
# Just within the gateway's limit.
_VALUES = 49_000
# Just within the limit on what is parsed of records. They fit into a batch of the small topic.
_READ_VALUES = 19_000
_BODY_BYTES = (2 << 20) - 1_000
_CHUNKS = (256 << 10) // len(b"1\r\nx\r\n")
_PLACES = {"topic": WIDE_TOPIC, "partition": "0", "broker_id": "1", "offset": "0"}
# A stream ends only after a duration that its request sets. It begins with all events that services
# remember.
_SEARCH_TIME = {"timeout_ms": "2000"}
_STREAMS = {
    "/v1/events/stream": {"since_ms": "1", "duration_ms": "500"},
    "/v1/topics/{topic}/search": _SEARCH_TIME,
}


class RestCase(NamedTuple):
    """A request to the gateway.

    - `in_chunks`: each byte of the body is a separate chunk.
    - `ends`: the operation whose end is awaited afterwards, unmeasured.
    - `allowed`: the type of an error that is not a rejection.
    """

    path: str
    body: bytes | None = None
    in_chunks: bool = False
    method: str = ""
    ends: str = ""
    allowed: str = ""

    @property
    def name(self) -> str:
        unit = "chunks" if self.in_chunks else "bytes"
        size = "" if self.body is None else f" {len(self.body):,} {unit} to"
        return f"{self.verb}{size} {self.path}"

    @property
    def verb(self) -> str:
        return self.method or ("GET" if self.body is None else "POST")

    def verdict(self, status: int, body: bytes) -> str:
        problem = "" if status < HTTPStatus.BAD_REQUEST else body.decode(errors="replace")
        is_allowed = self.allowed and f"urn:tidelog:error:{self.allowed}" in problem
        return f"{REJECTED}{status} {problem[:200]}" if problem and not is_allowed else str(status)


def json_body(body: object) -> bytes:
    return json.dumps(body).encode()


def reads(openapi: dict[str, Any]) -> Iterator[RestCase]:
    """Yields every readable path, with the largest page."""
    for path, methods in openapi["paths"].items():
        described = methods.get("get")
        # Requests for one operation are in `rest_operations`.
        if described is None or "{operation_id}" in path:
            continue
        queries = {p["name"] for p in described.get("parameters", ()) if p["in"] == "query"}
        largest = {"page_size": "1000", "max_records": "1000", "max_bytes": str(2 << 20)}
        largest |= {"max_scanned": "1000000", "max_matches": "1000"}
        largest |= _STREAMS.get(path, {})
        parameters = {name: value for name, value in largest.items() if name in queries}
        filled = path.format(**{name: _PLACES.get(name, "1") for name in _placeholders(path)})
        # The wide topic has no records.
        allowed = "no-such-record" if "{offset}" in path else ""
        query = f"?{urlencode(parameters)}" if parameters else ""
        yield RestCase(filled + query, allowed=allowed)
    yield from _searches()
    for encoding in ("json", "base64"):
        query = urlencode({"offset": 0, "max_records": 1000, "max_bytes": 2 << 20})
        for topic in (SMALL_TOPIC, LARGE_TOPIC):
            # The first record of large batches exceeds the size of an answer.
            allowed = "record-too-large" if topic == LARGE_TOPIC else ""
            path = f"/v1/topics/{topic}/partitions/0/records?{query}&encoding={encoding}"
            yield RestCase(path, allowed=allowed)
    backwards = urlencode({"before_offset": 1_000, "max_records": 1000, "max_bytes": 2 << 20})
    yield RestCase(f"/v1/topics/{SMALL_TOPIC}/partitions/0/records?{backwards}")
    # The last of the broker's large batches, which is not compressed.
    yield RestCase(f"/v1/topics/{LARGE_TOPIC}/partitions/0/records?latest=1")


def _searches() -> Iterator[RestCase]:
    """Yields searches that examine all records, and return none or as many as they may."""
    for topic in (SMALL_TOPIC, LARGE_TOPIC):
        for criterion in (
            {"value_contains": "\0absent"},
            {"json_path": "absent[0].name", "json_equals": "1"},
            {"header": "k", "max_matches": 1_000},
            {"max_matches": 1_000},
        ):
            query = urlencode({**criterion, **_SEARCH_TIME})
            yield RestCase(f"/v1/topics/{topic}/search?{query}")


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
    yield from _expensive_json(to_small)
    # As many chunks as are received at once.
    chunked = json.dumps({"records": [{"value": "x" * _CHUNKS}]}).encode()
    yield RestCase(to_small, chunked, in_chunks=True)
    moves = [
        {"topic": WIDE_TOPIC, "partition": number, "target": [1]}
        for number in range(WIDE_PARTITIONS)
    ]
    yield RestCase("/v1/reassignments?dry_run=true", json.dumps({"moves": moves}).encode())
    assigned = {"topic": "pauses-new", "assignment": [[1]] * WIDE_PARTITIONS}
    yield RestCase("/v1/topics?dry_run=true", json.dumps(assigned).encode())


def _expensive_json(to: str) -> Iterator[RestCase]:
    """Yields writes of JSON values that take long to parse and to write, and reads of each."""
    newest = f"{to.removesuffix('records')}partitions/0/records?latest=1&max_bytes={2 << 20}"
    sought = urlencode({"json_path": "absent", **_SEARCH_TIME})
    for value, encoding in (
        ([1.2345678901234567e-300] * _READ_VALUES, "json"),
        ({f"k{number:040}": 1 for number in range(_READ_VALUES)}, "json"),
        ([10**40 + number for number in range(_READ_VALUES)], "json"),
        # Six bytes of JSON for each.
        ("\x01" * (_BODY_BYTES // 6), "text"),
    ):
        record = {"value": value, "value_encoding": encoding}
        yield RestCase(to, json_body({"records": [record]}))
        yield RestCase(newest)
    yield RestCase(f"{to.removesuffix('records')}search?{sought}")


async def of_gateway(
    cluster: LocalCluster,
    rounds: int,
    bounds: Bounds = ALL_ROUNDS,
    selection: Selection = ALL,
) -> AsyncIterator[Pause]:
    url = f"http://{cluster.gateway_address}"
    openapi = json.loads((await answer(url, RestCase("/openapi.json")))[1])
    parameters = ((case.name, partial(verdict, url, case)) for case in (*reads(openapi), *writes()))
    gateway = cluster.gateway_process
    async for pause in measured("gateway", gateway, parameters, rounds, bounds, selection):
        yield pause


async def verdict(url: str, case: RestCase) -> str:
    return case.verdict(*await answer(url, case))


async def answer(url: str, case: RestCase) -> tuple[int, bytes]:
    return await asyncio.to_thread(_chunked_answer if case.in_chunks else _whole_answer, url, case)


def _whole_answer(url: str, case: RestCase) -> tuple[int, bytes]:
    request = urllib.request.Request(f"{url}{case.path}", data=case.body, method=case.verb)
    if case.body is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def _chunked_answer(url: str, case: RestCase) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_TIMEOUT_S)
    connection.putrequest("POST", case.path)
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Transfer-Encoding", "chunked")
    chunks = (b"1\r\n%c\r\n" % byte for byte in case.body or b"")
    connection.endheaders(b"".join(chunks) + b"0\r\n\r\n")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body
