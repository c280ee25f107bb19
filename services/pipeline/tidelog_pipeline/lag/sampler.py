"""Samples the lag of followers and queries from brokers and drivers."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException

from prometheus_client.parser import text_string_to_metric_families

from tidelog.client.clock import Clock
from tidelog.client.service_states import ServiceStates
from tidelog.inspection.state_reports import StateRequest
from tidelog.model import TopicPartition
from tidelog_pipeline.lag.sample_writer import SampleWriter
from tidelog_pipeline.lag.samples import (
    LagSample,
    QueryPosition,
    leaders_of,
    query_samples,
    replica_samples,
    silent_sample,
)

ANSWER_TIMEOUT_MS = 2_000
# A driver with some thousands of partitions returns about a megabyte.
MAX_ANSWER_BYTES = 32 << 20
_NEXT_OFFSET = "tidelog_spark_next_offset"


class LagSampler:
    """Samples every broker and driver. There is also a sample for one that does not answer."""

    def __init__(
        self,
        states: ServiceStates,
        writer: SampleWriter,
        drivers: Sequence[str],
        clock: Clock,
    ) -> None:
        self._states = states
        self._writer = writer
        self._drivers = drivers
        self._clock = clock

    async def _take_samples(self, at_ms: int) -> list[LagSample]:
        requests = [asyncio.to_thread(_fetch_positions, driver) for driver in self._drivers]
        answers, drivers = await asyncio.gather(
            self._states.ask(StateRequest(), ANSWER_TIMEOUT_MS), asyncio.gather(*requests)
        )
        leaders = leaders_of(answers.states)
        samples = replica_samples(at_ms, leaders)
        samples += [silent_sample(at_ms, str(one), one.problem) for one in answers.silent]
        for driver, positions in zip(self._drivers, drivers, strict=True):
            if isinstance(positions, str):
                samples.append(silent_sample(at_ms, f"driver {driver}", positions))
            else:
                samples += query_samples(at_ms, positions, leaders)
        return samples

    async def run(self, every_ms: int, rounds: int | None) -> None:
        """Samples at fixed times that do not drift.

        A round that took longer than the interval is followed by the next one at once. Raises
        as `SampleWriter.write` does.
        """
        began_ms = self._clock.monotonic_ms()
        done = 0
        try:
            while rounds is None or done < rounds:
                at_ms = self._clock.wall_ms()
                self._writer.write(at_ms, await self._take_samples(at_ms))
                done += 1
                late_ms = self._clock.monotonic_ms() - began_ms
                began_ms += max(every_ms, late_ms)
                if rounds is None or done < rounds:
                    await asyncio.sleep(max(every_ms - late_ms, 0) / 1000)
            await self._writer.wait_written()
        finally:
            await self._writer.stop()


def _fetch_positions(driver: str) -> list[QueryPosition] | str:
    """Returns the positions, or the reason why the driver did not return them."""
    try:
        with urllib.request.urlopen(
            f"http://{driver}/metrics", timeout=ANSWER_TIMEOUT_MS / 1000
        ) as answer:
            return query_positions(answer.read(MAX_ANSWER_BYTES).decode())
    except (OSError, HTTPException, ValueError) as error:
        return str(error)


def query_positions(text: str) -> list[QueryPosition]:
    """Returns the positions of queries in the metrics of a driver (`tidelog.spark.watch`).

    Raises `ValueError` for a text that is not in the metrics format.
    """
    try:
        return [
            QueryPosition(
                sample.labels["query"] or sample.labels["query_id"],
                TopicPartition(sample.labels["topic"], int(sample.labels["partition"])),
                int(sample.value),
            )
            for family in text_string_to_metric_families(text)
            if family.name == _NEXT_OFFSET
            for sample in family.samples
        ]
    except KeyError as error:
        raise ValueError(f"{_NEXT_OFFSET} has no label {error}") from error
