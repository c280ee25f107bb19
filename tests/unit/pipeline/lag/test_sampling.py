"""Sampling continues, whatever happens to the samples."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from structlog.testing import capture_logs

from tidelog.client.admin import Admin
from tidelog.client.clock import SystemClock
from tidelog.client.producer import Producer
from tidelog.client.service_states import ReportedStates, ServiceStates
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.explain import Listening, SilentService
from tidelog.inspection.state_reports import StateRequest
from tidelog.model import NO_LEADER
from tidelog_pipeline.job_command import JobError, load_action
from tidelog_pipeline.lag import lag_job, sample_writer
from tidelog_pipeline.lag.lag_config import ACTIONS, SampleConfig
from tidelog_pipeline.lag.sample_writer import SampleWriter
from tidelog_pipeline.lag.sampler import LagSampler
from unit.client.fake_broker import FakeCluster

TOPIC = "lags"
EVERY_MS = 10
LONG_MS = 60_000
PATIENCE_S = 30


class SilentCluster(ServiceStates):
    """A cluster that does not answer: each poll yields one sample."""

    def __init__(self) -> None:
        self.looks = 0
        self._looked = asyncio.Condition()

    async def ask(self, request: StateRequest, timeout_ms: int = 0) -> ReportedStates:  # noqa: ARG002
        async with self._looked:
            self.looks += 1
            self._looked.notify_all()
        return ReportedStates((), (SilentService("127.0.0.1:1", Listening.REFUSES, "refused"),))

    async def looked(self, times: int) -> None:
        async with self._looked:
            await self._looked.wait_for(lambda: self.looks >= times)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """The topic's partition has no leader."""
    started = await FakeCluster().start(1)
    started.create(TOPIC, [NO_LEADER])
    yield started
    await started.close()


@asynccontextmanager
async def writer_to(cluster: FakeCluster, timeout_ms: int) -> AsyncIterator[SampleWriter]:
    producer = Producer(cluster.bootstrap(), delivery_timeout_ms=timeout_ms)
    try:
        async with Admin(cluster.bootstrap()) as admin:
            yield SampleWriter(producer, admin, TOPIC)
    finally:
        await producer.close(flush=False)


def times_written(cluster: FakeCluster) -> list[int]:
    return [json.loads(value or b"")["at_ms"] for value in cluster.partition(TOPIC).values()]


@pytest.mark.rule("lag-sampling-outlives-failed-writes")
async def test_sampling_continues_while_the_topic_is_unavailable(cluster: FakeCluster) -> None:
    states = SilentCluster()
    async with writer_to(cluster, LONG_MS) as writer:
        sampler = LagSampler(states, writer, [], SystemClock())
        work = asyncio.create_task(sampler.run(EVERY_MS, 3))
        await states.looked(3)
        assert times_written(cluster) == []
        cluster.elect(TOPIC, 0, leader=0)
        await work
    written = times_written(cluster)
    assert len(written) == 3
    assert written == sorted(written)
    assert writer.unwritten == 0


@pytest.mark.rule("lag-sampling-outlives-failed-writes")
async def test_samples_not_written_in_time_are_logged_and_later_ones_are_written(
    cluster: FakeCluster,
) -> None:
    states = SilentCluster()
    with capture_logs() as lines:
        async with writer_to(cluster, 100) as writer:
            sampler = LagSampler(states, writer, [], SystemClock())
            await sampler.run(EVERY_MS, 2)
            assert writer.unwritten == 2
            cluster.elect(TOPIC, 0, leader=0)
            while not times_written(cluster):
                await sampler.run(EVERY_MS, 1)
    assert [line["event"] for line in lines] == ["samples_not_written"] * writer.unwritten
    assert "was not delivered within delivery_timeout_ms" in lines[0]["problem"]
    assert len({line["at_ms"] for line in lines}) == len(lines)


async def test_a_bounded_run_with_unwritten_samples_fails(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_job, "Producer", partial(Producer, delivery_timeout_ms=100))
    monkeypatch.setattr(lag_job, "ServiceStates", lambda *_: SilentCluster())
    flags = ["--bootstrap", cluster.bootstrap()[0], "--topic", TOPIC, "--rounds", "1"]
    config = load_action("lag", ACTIONS, ["sample", *flags])
    assert isinstance(config, SampleConfig)
    with capture_logs(), pytest.raises(JobError, match="1 samples were not written"):
        await lag_job._sample(config, SystemClock())


@pytest.mark.rule("lag-sampling-outlives-failed-writes")
async def test_the_number_of_buffered_samples_is_bounded(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_writer, "MAX_WAITING_SAMPLES", 2)
    states = SilentCluster()
    with capture_logs() as lines:
        async with writer_to(cluster, LONG_MS) as writer:
            sampler = LagSampler(states, writer, [], SystemClock())
            work = asyncio.create_task(sampler.run(EVERY_MS, 4))
            await states.looked(4)
            cluster.elect(TOPIC, 0, leader=0)
            await work
    assert [line["problem"] for line in lines] == ["2 earlier ones wait to be written"] * 2
    assert (writer.unwritten, len(times_written(cluster))) == (2, 2)


@pytest.mark.rule("lag-sampling-outlives-failed-writes")
async def test_sampling_ends_when_the_topic_is_deleted(cluster: FakeCluster) -> None:
    states = SilentCluster()
    async with writer_to(cluster, 100) as writer:
        work = asyncio.create_task(
            LagSampler(states, writer, [], SystemClock()).run(EVERY_MS, None)
        )
        await states.looked(2)
        cluster.topics.clear()
        with pytest.raises(TidelogError, match="does not exist") as ended, capture_logs():
            async with asyncio.timeout(PATIENCE_S):
                await work
    assert ended.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_buffered_samples_are_logged_when_sampling_is_stopped(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_writer, "STOP_TIMEOUT_MS", 20)
    states = SilentCluster()
    with capture_logs() as lines:
        async with writer_to(cluster, LONG_MS) as writer:
            sampler = LagSampler(states, writer, [], SystemClock())
            work = asyncio.create_task(sampler.run(EVERY_MS, None))
            await states.looked(2)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
    assert {line["problem"] for line in lines} == {"stopped before"}
    assert writer.unwritten == len(lines)
