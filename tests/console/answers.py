"""Waits for the gateway's answers about partitions.

They come from a broker, which learns of a change a moment after the controller has reported it to
the console as done."""

from __future__ import annotations

from typing import Any

import httpx

from integration.waiting import until


async def until_partition(rest: httpx.AsyncClient, name: str, **expected: object) -> None:
    """`name`: for example "sea/0"."""
    topic, _, number = name.rpartition("/")

    async def check() -> bool:
        answer = (await rest.get(f"/v1/topics/{topic}/partitions/{number}")).json()
        return expected == {field: answer[field] for field in expected}

    await until(check, f"{name} has {expected}")


async def until_partitions(rest: httpx.AsyncClient, topic: str, count: int) -> list[dict[str, Any]]:
    """All partitions, once there are so many."""

    async def check() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await rest.get(f"/v1/topics/{topic}/partitions")).json()[
            "items"
        ]
        return found if len(found) == count else []

    return await until(check, f"{topic} has {count} partitions")


async def until_replicas(rest: httpx.AsyncClient, topic: str, expected: list[list[int]]) -> None:
    async def check() -> bool:
        return [
            p["replicas"] for p in await until_partitions(rest, topic, len(expected))
        ] == expected

    await until(check, f"{topic} has the replicas {expected}")
