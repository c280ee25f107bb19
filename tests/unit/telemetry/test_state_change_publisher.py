"""Publication of state changes to their topic: in order, bounded, and without delaying the
service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from tidelog.client.delivery import Delivery
from tidelog.errors import ErrorCode, TidelogError
from tidelog.state_changes.event import Kind, Stage
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC, from_value
from tidelog_runtime.config import RegisteredConfig
from tidelog_runtime.telemetry import state_change_publisher
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from tidelog_runtime.telemetry.state_change_publisher import StateChangePublisher, publishing
from unit.metadata.virtual_time import run, virtual_clock


class FakeProducer:
    """Accepts records, except those for which `refuse` returns an error."""

    def __init__(self) -> None:
        self.revisions: list[int] = []
        self.keys: list[bytes | None] = []
        self.tries = 0
        self.closed = 0
        self.seconds = 0.0  # the time that accepting one takes
        self.refuse: Callable[[int], TidelogError | None] = lambda _: None

    async def send(
        self, topic: str, value: bytes | None, key: bytes | None = None
    ) -> asyncio.Future[Delivery]:
        assert topic == STATE_CHANGES_TOPIC
        self.tries += 1
        await asyncio.sleep(self.seconds)
        future: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        revision = from_value(value or b"").revision
        rejection = self.refuse(revision)
        if rejection is not None:
            future.set_exception(rejection)
        else:
            self.revisions.append(revision)
            self.keys.append(key)
            future.set_result(Delivery(topic, 0, len(self.revisions), 0, 0))
        return future

    async def close(self, *, flush: bool = True) -> None:
        assert not flush, "a caller that closes has no time to wait"
        self.closed += 1


class World:
    def __init__(self, max_queued_events: int = 1_000) -> None:
        self.log = StateChangeLog("broker-1", virtual_clock())
        self.producer = FakeProducer()
        self.brokers: Sequence[str] = ("broker-1:1",)
        self.publisher = StateChangePublisher(
            self.log, self.find, lambda _: self.producer, max_queued_events
        )

    async def find(self) -> Sequence[str]:
        return self.brokers

    def emit(self, *revisions: int, topic: str = "sea") -> None:
        for revision in revisions:
            self.log.emit(Kind.ISR_SHRINK, Stage.COMPLETED, topic=topic, revision=revision)

    async def publish_for(self, seconds: float) -> None:
        running = asyncio.create_task(self.publisher.run())
        await asyncio.sleep(seconds)
        await self.stop(running)

    @asynccontextmanager
    async def service(self) -> AsyncIterator[Callable[[], None]]:
        """A service that publishes and has done so once."""
        config = RegisteredConfig(listen="127.0.0.1:0")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(state_change_publisher, "new_event_producer", lambda _: self.producer)
            async with publishing(self.log, self.find, config) as hasten:
                self.emit(1)
                await asyncio.sleep(1)
                yield hasten

    async def stop(self, running: asyncio.Task[None]) -> None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def on_virtual_time(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        run(story())

    test.__name__ = story.__name__
    return test


def _unavailable(_: int) -> TidelogError:
    return TidelogError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few in sync")


@on_virtual_time
async def test_events_are_published_in_order() -> None:
    world = World()
    world.emit(*range(1, 500))
    await world.publish_for(1)
    assert world.producer.revisions == list(range(1, 500))
    assert world.log.dropped == 0


@on_virtual_time
async def test_consecutive_events_are_sent_together() -> None:
    world = World()
    running = asyncio.create_task(world.publisher.run())
    for revision in range(1, 11):
        world.emit(revision)
        assert world.producer.revisions == []
        await asyncio.sleep(0.1)
    await asyncio.sleep(2 * state_change_publisher.QUIET_MS / 1000)
    assert world.producer.revisions == list(range(1, 11))
    await world.stop(running)


@on_virtual_time
async def test_an_endless_series_of_events_is_sent_two_seconds_late_at_most() -> None:
    world = World()
    running = asyncio.create_task(world.publisher.run())
    for revision in range(1, 101):
        world.emit(revision)
        await asyncio.sleep(0.1)
        assert len(world.producer.revisions) >= revision - 21
    await world.stop(running)


@on_virtual_time
async def test_a_full_batch_is_sent_at_once() -> None:
    world = World()
    running = asyncio.create_task(world.publisher.run())
    world.emit(0)
    await asyncio.sleep(0.01)
    full = state_change_publisher.MAX_EVENTS_IN_FLIGHT
    world.emit(*range(1, full))
    await asyncio.sleep(0.01)
    assert world.producer.revisions == list(range(full))
    await world.stop(running)


@on_virtual_time
async def test_a_batch_that_fills_a_small_queue_is_sent_at_once() -> None:
    world = World(max_queued_events=3)
    running = asyncio.create_task(world.publisher.run())
    world.emit(1)
    await asyncio.sleep(0.01)
    world.emit(2, 3)
    await asyncio.sleep(0.01)
    assert world.producer.revisions == [1, 2, 3]
    world.emit(4)
    assert world.log.dropped == 0
    await world.stop(running)


@on_virtual_time
async def test_shutdown_sends_an_unfinished_batch() -> None:
    world = World()
    running = asyncio.create_task(world.publisher.run())
    world.emit(1)
    await asyncio.sleep(0.01)
    assert world.producer.revisions == []
    await world.stop(running)
    assert world.producer.revisions == [1]


@on_virtual_time
async def test_only_a_rejected_event_is_sent_again() -> None:
    world = World()
    rejected = [3]
    world.producer.refuse = lambda r: _unavailable(r) if r in rejected else None
    world.emit(1, 2, 3, 4)
    running = asyncio.create_task(world.publisher.run())
    await asyncio.sleep(0.3)
    rejected.clear()
    await asyncio.sleep(5)
    await world.stop(running)
    assert world.producer.revisions == [1, 2, 4, 3]


@on_virtual_time
async def test_events_beyond_the_queue_limit_are_dropped_and_counted() -> None:
    world = World(max_queued_events=3)
    world.producer.refuse = _unavailable
    world.emit(1, 2, 3, 4, 5)
    assert world.log.dropped == 2
    world.producer.refuse = lambda _: None
    await world.publish_for(1)
    assert world.producer.revisions == [1, 2, 3]


def _about_drops(lines: list[Any]) -> list[tuple[str, int | None]]:
    return [(line["event"], line.get("dropped")) for line in lines if "dropp" in line["event"]]


@on_virtual_time
async def test_a_burst_of_drops_is_logged_at_its_start_and_end() -> None:
    world = World(max_queued_events=3)
    began, over = ("state_changes_dropping", None), "state_changes_dropped"
    with capture_logs() as lines:
        world.emit(*range(1, 504))
        assert _about_drops(lines) == [began]
        await world.publish_for(1)
        assert _about_drops(lines) == [began, (over, 500)]
        world.emit(*range(1, 5))
        await world.publish_for(1)
    assert _about_drops(lines) == [began, (over, 500), began, (over, 1)]


@on_virtual_time
async def test_drops_that_last_until_shutdown_are_logged_there() -> None:
    world = World(max_queued_events=3)
    world.producer.refuse = _unavailable
    with capture_logs() as lines:
        world.emit(1, 2, 3, 4, 5)
        await world.publish_for(1)
    assert _about_drops(lines)[-1] == ("state_changes_dropped", 2)


@on_virtual_time
async def test_a_failing_topic_is_retried_less_and_less_often() -> None:
    world = World()
    world.producer.refuse = _unavailable
    world.emit(1)
    await world.publish_for(600)
    pauses_at_most = 600_000 / state_change_publisher.MAX_PAUSE_MS
    assert 15 <= world.producer.tries <= pauses_at_most + 10
    assert world.log.dropped == 0


@on_virtual_time
async def test_a_flood_is_published_at_a_bounded_rate() -> None:
    world = World(max_queued_events=10_000)
    world.emit(*range(1, 10_001))
    running = asyncio.create_task(world.publisher.run())
    await asyncio.sleep(1)
    assert len(world.producer.revisions) <= state_change_publisher.MAX_EVENTS_PER_SECOND + 200
    await world.stop(running)


@on_virtual_time
async def test_a_failure_to_publish_emits_no_state_change() -> None:
    world = World()
    world.producer.refuse = _unavailable
    world.emit(1)
    await world.publish_for(600)
    assert world.log.reported == 1


@on_virtual_time
async def test_events_about_the_topic_itself_are_not_published() -> None:
    world = World()
    world.emit(1, topic=STATE_CHANGES_TOPIC)
    world.emit(2)
    await world.publish_for(1)
    assert world.producer.revisions == [2]
    assert world.log.dropped == 0


@on_virtual_time
async def test_an_event_that_brokers_always_reject_delays_no_other() -> None:
    world = World()
    too_large = TidelogError(ErrorCode.BATCH_TOO_LARGE, "too large")
    world.producer.refuse = lambda r: too_large if r == 2 else None
    world.emit(1, 2, 3)
    await world.publish_for(1)
    assert world.producer.revisions == [1, 3]
    assert world.log.dropped == 1


@on_virtual_time
async def test_publishing_waits_for_brokers() -> None:
    world = World()
    world.brokers = ()
    world.emit(1)
    running = asyncio.create_task(world.publisher.run())
    await asyncio.sleep(10)
    assert world.producer.tries == 0
    world.brokers = ("broker-2:1",)
    await asyncio.sleep(60)
    await world.stop(running)
    assert world.producer.revisions == [1]


@on_virtual_time
async def test_shutdown_sends_queued_events() -> None:
    world = World()
    running = asyncio.create_task(world.publisher.run())
    world.emit(1)
    await asyncio.sleep(1)
    world.emit(2)
    await world.stop(running)
    assert world.producer.revisions == [1, 2]
    assert world.producer.closed == 1


@on_virtual_time
async def test_shutdown_does_not_wait_for_a_failing_topic() -> None:
    world = World()
    world.emit(1)
    running = asyncio.create_task(world.publisher.run())
    await asyncio.sleep(1)
    world.producer.refuse = _unavailable
    world.emit(2)
    before = virtual_clock().monotonic_ms()
    await world.stop(running)
    assert virtual_clock().monotonic_ms() - before <= state_change_publisher.FLUSH_TIMEOUT_MS


@on_virtual_time
async def test_events_queued_during_shutdown_are_sent() -> None:
    """Events logged meanwhile are sent too, so that no caller waits for them afterwards."""
    world = World()
    async with world.service() as hasten:
        world.emit(2)
        hasten()
        await asyncio.sleep(0.01)
        assert world.producer.revisions == [1, 2]
        world.emit(3)
        await asyncio.sleep(0.01)
        assert world.producer.revisions == [1, 2, 3]
        before = virtual_clock().monotonic_ms()
    assert virtual_clock().monotonic_ms() == before
    assert world.producer.closed == 1


@on_virtual_time
async def test_unsent_events_are_not_waited_for_again() -> None:
    world = World()
    async with world.service() as hasten:
        world.producer.seconds = 0.2
        world.emit(2, 3, 4, 5)
        before = virtual_clock().monotonic_ms()
        hasten()
        await asyncio.sleep(0.3)
    took_ms = virtual_clock().monotonic_ms() - before
    assert took_ms == state_change_publisher.FLUSH_TIMEOUT_MS
    assert world.producer.closed == 1


@on_virtual_time
async def test_records_are_keyed_by_their_subject() -> None:
    world = World()
    world.emit(1)
    world.log.emit(Kind.STORE_LOST, Stage.COMPLETED, revision=2)
    await world.publish_for(1)
    assert world.producer.keys == [b"sea", b"broker-1"]


@on_virtual_time
async def test_an_internal_error_of_the_client_does_not_end_publishing() -> None:
    world = World()
    faults = [ValueError("a fault")]

    def failing(_: Sequence[str]) -> FakeProducer:
        if faults:
            raise faults.pop()
        return world.producer

    world.publisher = StateChangePublisher(world.log, world.find, failing, 10)
    world.emit(1)
    await world.publish_for(5)
    assert world.producer.revisions == [1]


def test_an_invalid_state_change_document_is_rejected() -> None:
    from tidelog.state_changes.json_form import NotAStateChangeError

    for wrong in (b"", b"[]", b"{}", b'{"kind": "x"}'):
        with pytest.raises(NotAStateChangeError):
            from_value(wrong)
