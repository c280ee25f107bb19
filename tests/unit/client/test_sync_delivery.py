"""The future that `SyncProducer.send` returns. Threads take real time, some milliseconds a test."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.client import Delivery, RequestTimedOutError, SyncProducer, TidelogError
from tidelog.errors import ErrorCode
from unit.client.fake_broker import FakeCluster
from unit.client.memory_connections import MemoryConnections

PATIENCE_S = 10.0


class Sea:
    """A producer of one topic, whose broker answers while its gate is open."""

    def __init__(self) -> None:
        self.cluster = FakeCluster().in_memory()
        self.cluster.create("sea", [0])
        self.producer = SyncProducer(
            self.cluster.bootstrap(),
            connections=MemoryConnections(self.cluster),
            linger_ms=0,
            delivery_timeout_ms=10_000,
        )
        # The topic and the producer's id are known from here on.
        self.producer.send_and_wait("sea", b"first")

    def set_open(self, is_open: bool) -> None:
        gate = self.cluster.brokers[0].gate

        async def change() -> None:
            gate.set() if is_open else gate.clear()

        self.producer.ask(lambda _: change())


@pytest.fixture
def sea() -> Iterator[Sea]:
    made = Sea()
    yield made
    made.producer.close(flush=False)


def test_the_result_is_the_delivery(sea: Sea) -> None:
    delivery = sea.producer.send("sea", b"calm").result(timeout=PATIENCE_S)
    assert isinstance(delivery, Delivery)
    assert delivery.offset == 1


def test_records_that_are_sent_without_waiting_share_a_batch() -> None:
    cluster = FakeCluster().in_memory()
    cluster.create("sea", [0])
    connections = MemoryConnections(cluster)
    with SyncProducer(cluster.bootstrap(), connections=connections, linger_ms=60_000) as producer:
        pending = [producer.send("sea", b"%d" % number) for number in range(50)]
        assert not any(delivery.done() for delivery in pending)
        producer.flush()
        assert [delivery.result().offset for delivery in pending] == [*range(50)]
    assert len(cluster.partition("sea").batches) == 1


def test_a_wait_ends_after_its_timeout_and_the_record_is_delivered(sea: Sea) -> None:
    sea.set_open(False)
    pending = sea.producer.send("sea", b"calm")
    with pytest.raises(TimeoutError, match="no outcome"):
        pending.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        pending.exception(timeout=0)
    assert not pending.done()
    sea.set_open(True)
    assert pending.exception(timeout=PATIENCE_S) is None
    assert pending.result().offset == 1


def test_a_flush_ends_after_its_timeout(sea: Sea) -> None:
    sea.set_open(False)
    pending = sea.producer.send("sea", b"calm")
    with pytest.raises(RequestTimedOutError, match="1 batches have no outcome") as late:
        sea.producer.flush(timeout_ms=10)
    assert late.value.outcome_unknown
    sea.set_open(True)
    sea.producer.flush(timeout_ms=10_000)
    assert pending.done()


def test_many_threads_wait_for_one_record(sea: Sea) -> None:
    sea.set_open(False)
    pending = sea.producer.send("sea", b"calm")
    found: list[Delivery] = []
    threads = [threading.Thread(target=lambda: found.append(pending.result())) for _ in range(4)]
    for thread in threads:
        thread.start()
    sea.set_open(True)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [delivery.offset for delivery in found] == [1] * 4


def test_an_error_is_raised_by_the_result(sea: Sea) -> None:
    sea.set_open(False)
    pending = sea.producer.send("sea", b"calm")
    sea.producer.close(flush=False)
    for _ in range(2):
        with pytest.raises(TidelogError) as failed:
            pending.result()
        assert failed.value.code is ErrorCode.CLIENT_CLOSED
    assert pending.exception() is failed.value
    sea.cluster.brokers[0].gate.set()


def test_close_delivers_and_the_result_is_read_afterwards(sea: Sea) -> None:
    pending = sea.producer.send("sea", b"calm")
    sea.producer.close()
    assert pending.result().offset == 1


def test_a_waiting_thread_gets_the_outcome_of_a_record_that_close_delivers(sea: Sea) -> None:
    sea.set_open(False)
    pending = sea.producer.send("sea", b"calm")
    found: list[Any] = []

    def wait() -> None:
        try:
            found.append(pending.result().offset)
        except TidelogError as error:
            found.append(error.code)

    waiting = threading.Thread(target=wait)
    waiting.start()
    sea.producer.ask(lambda client: client.partitions_of("sea"))
    sea.producer._background._loop.call_soon_threadsafe(sea.cluster.brokers[0].gate.set)
    sea.producer.close()
    waiting.join(PATIENCE_S)
    assert found == [1]


def test_a_callback_is_called_once_with_the_future(sea: Sea) -> None:
    sea.set_open(False)
    pending = sea.producer.send("sea", b"calm")
    called: list[Any] = []
    pending.add_done_callback(lambda delivery: called.append((delivery, delivery.result().offset)))
    assert called == []
    sea.set_open(True)
    sea.producer.flush()
    assert called == [(pending, 1)]
    pending.add_done_callback(lambda delivery: called.append(delivery))
    assert called[1:] == [pending]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_that_is_never_read_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    made = Sea()
    made.set_open(False)
    made.producer.send("sea", b"calm")
    made.producer.close(flush=False)
    made.cluster.brokers[0].gate.set()
    gc.collect()
    assert "exception was never retrieved" in caplog.text


def test_the_fields_of_the_former_result_can_be_read_with_a_warning(sea: Sea) -> None:
    pending: Any = sea.producer.send("sea", b"calm")
    with pytest.warns(DeprecationWarning, match=r"read send\(...\).result\(\).offset"):
        assert pending.offset == 1
    with pytest.raises(AttributeError, match="no attribute ofset"):
        pending.ofset  # noqa: B018
