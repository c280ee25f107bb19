"""The clients in other languages, on this machine, against the composed cluster."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest

from compose.stack import BROKERS, Stack
from examples.programs import PROGRAMS, Program, running

WHOLE_TIMEOUT_S = 120.0
# Before the leader dies, and after it.
PORTION = 200
TOOLS = {"go": ("go", "make"), "java": ("java", "mvn"), "typescript": ("node", "npm")}


def portion(number: int) -> list[str]:
    return [f"key-{n}:value-{n}" for n in range(number * PORTION, (number + 1) * PORTION)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.language)
def test_a_client_in_another_language_continues_after_a_leader_was_killed(
    stack: Stack, program: Program
) -> None:
    missing = [tool for tool in TOOLS[program.language] if shutil.which(tool) is None]
    if missing:
        leave_out = pytest.fail if os.environ.get("CI") else pytest.skip
        leave_out(f"needs {', '.join(missing)}, which this machine has not")
    program.build()
    topic = f"from-{program.language}"
    stack.post("/v1/topics", {"topic": topic, "partitions": 3, "replication_factor": 3})
    stack.wait_whole(topic, WHOLE_TIMEOUT_S)
    victim = BROKERS[stack.partitions(topic)[0]["leader"] - 1]

    asyncio.run(continues(stack, program, topic, victim))

    stack.start(victim)
    stack.wait_whole(topic, WHOLE_TIMEOUT_S)
    stack.wait_healthy([victim], WHOLE_TIMEOUT_S)


async def continues(stack: Stack, program: Program, topic: str, victim: str) -> None:
    at = ("--brokers", ",".join(stack.brokers.values()))
    async with (
        running(program, "produce", topic, *at, "--compression", "zstd") as producer,
        running(program, "consume", topic, *at) as consumer,
    ):
        await producer.feed(portion(0))
        await producer.prints(PORTION)
        await consumer.prints(PORTION)
        await asyncio.to_thread(stack.signal, victim, "KILL")
        await producer.feed(portion(1))
        await producer.prints(2 * PORTION)
        status = await producer.end_of_input()
        await consumer.prints(2 * PORTION)
    assert status == 0
    read = [f"{(line.key or b'').decode()}:{line.value.decode()}" for line in consumer.lines]
    assert sorted(read) == sorted(portion(0) + portion(1))
