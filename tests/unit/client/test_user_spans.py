"""Produce and fetch requests belong to the user's span, if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context, trace

from tidelog.client import Consumer, Producer
from unit.client.fake_broker import FakeCluster

PATIENCE_S = 20


@contextmanager
def span(trace_id: int) -> Iterator[str]:
    """A span that is current, as a user's OpenTelemetry sets it; yields the trace id."""
    made = trace.NonRecordingSpan(trace.SpanContext(trace_id, 0xB2, is_remote=False))
    token = context.attach(trace.set_span_in_context(made))
    try:
        yield f"{trace_id:032x}"
    finally:
        context.detach(token)


def traces(cluster: FakeCluster, rpc: str) -> list[str]:
    return [found for broker in cluster.brokers.values() for found in broker.traces[rpc]]


async def test_a_batch_carries_the_span_in_which_it_was_begun(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap(), linger_ms=0) as producer:
        with span(0xA1) as first:
            await (await producer.send("sea", b"calm", partition=0))
        with span(0xA2) as second:
            await (await producer.send("sea", b"calm", partition=0))
            await (await producer.send_many("sea", [b"ebb"], partition=0))
        await (await producer.send("sea", b"calm", partition=0))
    assert traces(cluster, "produce") == [first, second, second, ""]


async def test_fetches_carry_the_span_of_the_last_poll(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap(), max_wait_ms=20) as consumer:
        async with asyncio.timeout(PATIENCE_S):
            with span(0xA1) as users:
                await consumer.assign_topic("sea")
                while users not in traces(cluster, "fetch"):
                    await consumer.poll(timeout_ms=100)
            # A fetch in flight keeps the span in which it began.
            while traces(cluster, "fetch")[-1] == users:
                await consumer.poll(timeout_ms=100)
    assert traces(cluster, "fetch")[-1] == ""
