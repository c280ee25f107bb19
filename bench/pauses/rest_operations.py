"""The largest requests that change a cluster through the gateway: each writing route, in an order
in which each is valid."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from bench.pauses.operations import MOST_ASSIGNED, SETTLED_S, measuring, operation_ended
from bench.pauses.rest import RestCase, json_body, verdict
from bench.pauses.run import ALL_ROUNDS, Bounds, Pause
from tidelog.feature_levels import FIRST_LEVEL
from tidelog_runtime.local.cluster import LocalCluster

_RESTORE = "restore"


def changes(round_number: int, partitions: int = MOST_ASSIGNED) -> Iterator[RestCase]:
    topic = f"pauses-rest-{round_number}"
    at, created = f"/v1/topics/{topic}", {"topic": topic, "assignment": [[1, 2]] * partitions}
    yield _case("POST", "/v1/topics?timeout_ms=60000", created)
    yield _case("PATCH", f"{at}/config?timeout_ms=60000", {"set": {"retention_ms": "1000000"}})
    yield from _leaders(topic, partitions)
    yield from _operations(topic, round_number, partitions)
    for number in (2 * partitions, 1):
        count = {"partitions": number, "confirm": topic}
        yield _case("PUT", f"{at}/partition-count?timeout_ms=60000", count)
    yield _case("PUT", "/v1/throttle", {"bytes_per_second": 1 << 30})
    yield _case("PUT", "/v1/throttle", {"bytes_per_second": None})
    yield _case("PUT", "/v1/cluster/feature-level", {"level": FIRST_LEVEL})
    yield _case("POST", "/v1/brokers/scrub", {"full_rate": False})
    yield _case("DELETE", f"{at}?confirm={topic}&timeout_ms=60000")


def _leaders(topic: str, partitions: int) -> Iterator[RestCase]:
    moves = [{"topic": topic, "partition": n, "leader": 2} for n in range(partitions)]
    yield _case("POST", "/v1/leaders/move?timeout_ms=1000", {"moves": moves})
    yield _case("POST", "/v1/leaders/elect-preferred?timeout_ms=1000", {})
    for maintenance in (True, False):
        change: dict[str, Any] = {"maintenance": maintenance}
        yield _case("PUT", "/v1/brokers/2/maintenance?timeout_ms=1000", change)
        of_several = {**change, "broker_ids": [2]}
        yield _case("PUT", "/v1/brokers/maintenance?timeout_ms=1000", of_several)
    recovered = {"topic": topic, "partitions": list(range(partitions)), "confirm": topic}
    yield _case("POST", "/v1/recovery?timeout_ms=1000", recovered)


def _operations(topic: str, number: int, partitions: int) -> Iterator[RestCase]:
    moves = [{"topic": topic, "partition": n, "target": [1, 3]} for n in range(partitions)]
    factor = {"replication_factor": 1}
    begun: dict[str, tuple[str, str, dict[str, Any]]] = {
        "reassign": ("POST", "/v1/reassignments", {"moves": moves}),
        "reverse": ("POST", f"/v1/operations/rest-reassign-{number}/reverse", {}),
        "rebalance": ("POST", "/v1/rebalance", {}),
        "factor": ("PUT", f"/v1/topics/{topic}/replication-factor", factor),
        "factors": ("PUT", "/v1/replication-factor", {"replication_factor": 2, "topics": [topic]}),
        "remove": ("POST", "/v1/brokers/remove", {"broker_ids": [3]}),
        # Otherwise a cancelled addition would leave the broker removed, and the next round would
        # fail.
        _RESTORE: ("POST", f"/v1/operations/rest-remove-{number}/reverse", {}),
        "add": ("POST", "/v1/brokers/add", {"broker_ids": [3]}),
    }
    for name, (method, path, body) in begun.items():
        operation = f"rest-{name}-{number}"
        yield _case(method, path, {**body, "operation_id": operation})
        for read in ("", "/moves?page_size=1000"):
            yield RestCase(f"/v1/operations/{operation}{read}")
        if name == _RESTORE:
            yield RestCase(f"/v1/operations/{operation}", ends=operation)
            continue
        # An operation that copies nothing may be done before it is cancelled.
        yield RestCase(
            f"/v1/operations/{operation}/cancel",
            b"{}",
            method="POST",
            ends=operation,
            allowed="operation-ended",
        )


def _case(method: str, path: str, body: dict[str, Any] | None = None) -> RestCase:
    return RestCase(path, None if body is None else json_body(body), method=method)


async def of_gateway_changes(
    cluster: LocalCluster,
    rounds: int,
    partitions: int = MOST_ASSIGNED,
    settled_s: float = SETTLED_S,
    bounds: Bounds = ALL_ROUNDS,
) -> AsyncIterator[Pause]:
    """Measures a cluster that can lose broker 3. Yields a pause for each route and service. A round
    in which all pauses are within the bounds is the last."""
    url = f"http://{cluster.gateway_address}"
    async with measuring(cluster, settled_s) as (channel, findings):
        for number in range(rounds):
            for case in changes(number, partitions):
                # The same in each round.
                name = case.name.replace(f"-{number}", "")
                await findings.measure(name, verdict(url, case))
                if case.ends:
                    await operation_ended(channel, case.ends)
            if findings.are_within(bounds):
                break
    for pause in findings.pauses():
        yield pause
