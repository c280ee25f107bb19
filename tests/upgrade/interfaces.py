"""Every gRPC method and every GET of the gateway, from one release to the services of another."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping

import httpx

from upgrade.mixed_cluster import MixedCluster
from upgrade.releases import ROOT, Release

TIMEOUT_S = 120.0
REST_TIMEOUT_S = 60.0
# Statuses that say that a service failed, and not what is wrong with the request.
FAULTS = ("UNKNOWN", "INTERNAL", "DATA_LOSS", "UNAVAILABLE")
UNIMPLEMENTED = "UNIMPLEMENTED"
STREAMING = "text/event-stream"

# By address and method.
Statuses = Mapping[str, Mapping[str, str]]


async def check_methods(cluster: MixedCluster, releases: tuple[Release, Release]) -> list[str]:
    """Returns what was wrong with the answers to the clients of both releases."""
    parts = {cluster.address(part): part for part in [*cluster.brokers, *cluster.controllers]}
    answers = {release.version: await _called(release, list(parts)) for release in releases}
    versions = {address: cluster.release_of(part).version for address, part in parts.items()}
    return [
        f"{parts[address]} of release {versions[address]}: {problem}"
        for address, problem in judge_methods(answers, versions)
    ]


async def _called(release: Release, addresses: list[str]) -> Statuses:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "upgrade.every_method", *addresses),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=release.environment(ROOT / "tests"),
    )
    async with asyncio.timeout(TIMEOUT_S):
        out, err = await process.communicate()
    if process.returncode:
        raise RuntimeError(
            f"the calls of release {release.version} failed: {err.decode()[-2_000:]}"
        )
    statuses: Statuses = json.loads(out)
    return statuses


def judge_methods(
    answers: Mapping[str, Statuses], versions: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yields the address and what is wrong. Pure.

    - `answers`: by the version of the client.
    - `versions`: of each service, by address.

    A method may be unimplemented only if the service's own release does not have it."""
    for client, statuses in answers.items():
        for address, by_method in statuses.items():
            own = answers[versions[address]][address]
            if not by_method:
                yield address, f"it serves no method that a client of {client} has"
            for method, status in by_method.items():
                code = status.partition(":")[0]
                if code in FAULTS:
                    yield address, f"{method} from a client of {client}: {status}"
                elif code == UNIMPLEMENTED and method in own:
                    yield address, f"{method} is unimplemented for a client of {client}"


async def check_rest(cluster: MixedCluster, topic: str) -> list[str]:
    """Sends every GET of the gateway's own document that needs no other parameters than a topic, a
    partition and a broker. Returns what was wrong."""
    problems = []
    async with httpx.AsyncClient(
        base_url=f"http://{cluster.gateway_address}", timeout=REST_TIMEOUT_S, trust_env=False
    ) as http:
        document = (await http.get("/openapi.json")).json()
        known = {"topic": topic, "partition": "0", "broker_id": "1", "offset": "0"}
        for path, operations in document["paths"].items():
            operation = operations.get("get")
            if operation is None or _is_stream(operation):
                continue
            answer = await http.get(_filled(path, known))
            if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                problems.append(f"GET {path}: {answer.status_code} {answer.text[:500]}")
    return problems


def _is_stream(operation: Mapping[str, Mapping[str, Mapping[str, object]]]) -> bool:
    return any(
        STREAMING in str(response.get("content", ""))
        for response in operation["responses"].values()
    )


def _filled(path: str, known: Mapping[str, str]) -> str:
    """The path with its parameters; unknown ones get a name that does not exist.

    >>> _filled("/v1/topics/{topic}/operations/{id}", {"topic": "sea"})
    '/v1/topics/sea/operations/none'
    """
    parts = path.split("/")
    return "/".join(
        known.get(part[1:-1], "none") if part.startswith("{") else part for part in parts
    )
