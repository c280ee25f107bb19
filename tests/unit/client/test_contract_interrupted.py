"""docs/client-guarantees.md for signal handlers: every public method of the clients without async ×
every point at which Python may run a handler in its caller's thread × what the handler does.

CPython runs handlers when a Python function begins and when a C function returns. A profile
function sees these points, so the tests need no signals and miss no point.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest

from tidelog.client import Consumer, SyncConsumer, SyncProducer
from tidelog.errors import ClientClosedError
from tidelog.model import Record
from unit.client.contract_calls import SYNC_CLIENTS, PublicCall, public_calls
from unit.client.fake_broker import FakeCluster
from unit.client.memory_connections import MemoryConnections
from unit.client.test_contract_sync import HANGS_AFTER_S, InThread, silent

PARTITIONS = 2
BATCHES = 4
BATCH_RECORDS = 5
RECORDS = PARTITIONS * BATCHES * BATCH_RECORDS
# A call that has not reached the next point by then waits for a broker.
WAITS_AFTER_S = 0.03
# A call has more points than that, or the profile function misses them.
MIN_POINTS = 20

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
# Methods that `blocking` makes have one implementation: one of each client is enough.
each_implementation = pytest.mark.parametrize(
    "method",
    {
        (call.client, getattr(call.client, call.method).__code__): call
        for call in public_calls(*SYNC_CLIENTS)
    }.values(),
    ids=str,
)


class Interrupted(BaseException):
    """Raised by the handler, as KeyboardInterrupt is."""


class Handler:
    """Runs `work` once in the block, at the point with this number; `at`: of those where a function
    of this name begins."""

    def __init__(self, point: int, work: Callable[[], Any], at: str = "") -> None:
        self._left = point
        self._work = work
        self._at = at
        self.has_run = False

    def __enter__(self) -> Handler:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        is_own = frame.f_code.co_filename == __file__ and frame.f_code.co_name in _OWN
        if self.has_run or event not in ("call", "c_return") or is_own:
            return
        if self._at and (event != "call" or frame.f_code.co_name != self._at):
            return
        if self._left:
            self._left -= 1
            return
        if is_finalizer(frame):
            return
        self.has_run = True
        self._work()


_OWN = ("__enter__", "__exit__")


def is_finalizer(frame: FrameType | None) -> bool:
    """Whether it is called by one, which drops exceptions. Garbage is collected at any point."""
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "_remove"):
            return True
        frame = frame.f_back
    return False


def interrupt() -> None:
    raise Interrupted


def written() -> FakeCluster:
    """A cluster whose topic has RECORDS records in small batches."""
    cluster = FakeCluster().in_memory()
    cluster.create("sea", [0] * PARTITIONS)
    with SyncProducer(cluster.bootstrap(), connections=MemoryConnections(cluster)) as producer:
        for partition, batch in itertools.product(range(PARTITIONS), range(BATCHES)):
            values = [b"%d" % (batch * BATCH_RECORDS + number) for number in range(BATCH_RECORDS)]
            producer.send_many("sea", values, partition=partition)
    return cluster


@pytest.fixture(scope="module")
def sea() -> FakeCluster:
    return written()


@contextmanager
def reading(cluster: FakeCluster, **settings: Any) -> Iterator[SyncConsumer]:
    connections = MemoryConnections(cluster)
    with SyncConsumer(cluster.bootstrap(), connections=connections, **settings) as consumer:
        consumer.assign_topic("sea")
        yield consumer


def first(consumer: SyncConsumer) -> Record:
    # `next` is a C function: an interruption when it returns would be one of this caller.
    for record in consumer:
        return record
    raise AssertionError("an iteration has no end")


# What calls them may be interrupted, except the calls themselves.
TAKINGS: dict[str, Callable[[SyncConsumer], Any]] = {
    "poll": lambda c: c.poll(1_000, max_records=3),
    "poll_batches": lambda c: c.poll_batches(1_000, max_batches=2),
    "__iter__": first,
    "ask-poll": lambda c: c.ask(lambda consumer: consumer.poll(1_000, max_records=3)),
    "ask-anext": lambda c: c.ask(Consumer.__anext__),
}


def records_of(taken: Any) -> list[Record]:
    items = [taken] if isinstance(taken, Record) else taken
    return [r for item in items for r in ([item] if isinstance(item, Record) else item.records())]


each_taking = pytest.mark.parametrize("taking", TAKINGS)


def places(records: list[Record]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


def assert_each_once(records: list[Record]) -> None:
    found = places(records)
    assert sorted(found) == [
        (p, o) for p in range(PARTITIONS) for o in range(RECORDS // PARTITIONS)
    ]
    for partition in range(PARTITIONS):
        offsets = [o for p, o in found if p == partition]
        assert offsets == sorted(offsets)


def test_the_takings_are_all_calls_that_return_records() -> None:
    returns = {
        method.method
        for method in public_calls(SyncConsumer)
        if re.search(r"\b(Record|FetchedBatch|_Result)\b",
                     str(getattr(SyncConsumer, method.method).__annotations__.get("return")))
    }  # fmt: skip
    assert returns == {name.split("-")[0] for name in TAKINGS}


@each_taking
def test_an_interrupted_taking_has_consumed_nothing(sea: FakeCluster, taking: str) -> None:
    take = TAKINGS[taking]
    for point in itertools.count():
        read: list[Record] = []
        handlers = [Handler(point, interrupt) for _ in range(3)]
        with reading(sea) as consumer:
            for handler in handlers:
                try:
                    with handler:
                        taken = take(consumer)
                except Interrupted:
                    pass
                else:
                    read += records_of(taken)
                assert_positions_follow(consumer, read)
            while len(read) < RECORDS:
                read += records_of(take(consumer))
            assert_each_once(read)
        if not any(handler.has_run for handler in handlers):
            break
    assert point > MIN_POINTS


def positions(consumer: SyncConsumer) -> list[int]:
    """Of a partition whose start is not found yet: 0."""
    return [consumer.position(("sea", number)) or 0 for number in range(PARTITIONS)]


def assert_positions_follow(consumer: SyncConsumer, read: list[Record]) -> None:
    for partition, position in enumerate(positions(consumer)):
        offsets = [record.offset for record in read if record.partition == partition]
        assert position == (offsets[-1] + 1 if offsets else 0)


@each_taking
def test_a_handler_takes_records_in_the_middle_of_a_taking(sea: FakeCluster, taking: str) -> None:
    take = TAKINGS[taking]
    for point in itertools.count():
        with reading(sea) as consumer:
            read = consumer.poll(1_000, max_records=1)
            poll = partial(consumer.poll, 1_000, max_records=2)
            handler = Handler(point, partial(_extend, read, poll))
            with handler:
                taken = take(consumer)
            read += records_of(taken)
            while len(read) < RECORDS:
                read += records_of(take(consumer))
            assert len(set(places(read))) == len(read) == RECORDS
        if not handler.has_run:
            break
    assert point > MIN_POINTS


def _extend(read: list[Record], poll: Callable[[], list[Record]]) -> None:
    read.extend(poll())


def _in_block(handler: Handler, work: Callable[[], Any]) -> None:
    with handler:
        work()


@each_implementation
def test_a_handler_closes_the_client_in_the_middle_of_a_call(method: PublicCall) -> None:
    """No lock that the interrupted call holds is needed by `close`, nor by the event loop."""
    for point in itertools.count():
        with silent(method.client) as (client, _):
            how = {"flush": False} if method.client is SyncProducer else {}
            close = partial(client.close, **how)
            handler = Handler(point, close)
            running = InThread(partial(_in_block, handler, partial(method.run, client)))
            ended = running.ended(WAITS_AFTER_S)
            if handler.has_run:
                assert running.ended(HANGS_AFTER_S)
                assert isinstance(running.error, ClientClosedError | None)
                continue
        assert running.ended(HANGS_AFTER_S), "the client was closed"
        assert point or ended
        break


@pytest.mark.parametrize("client", SYNC_CLIENTS, ids=lambda client: client.__name__)
def test_a_handler_closes_the_client_in_the_middle_of_close(client: type) -> None:
    for point in itertools.count():
        with silent(client) as (made, connections):
            handler = Handler(point, made.close)
            closing = InThread(partial(_in_block, handler, made.close))
            assert closing.ended(HANGS_AFTER_S)
            assert closing.error is None
            assert connections.closed == 1
        if not handler.has_run:
            break


def test_an_interrupted_close_delivers_what_was_accepted() -> None:
    for point in itertools.count():
        cluster = FakeCluster().in_memory()
        cluster.create("sea", [0])
        producer = SyncProducer(cluster.bootstrap(), connections=MemoryConnections(cluster))
        delivery = producer.ask(lambda client: client.send("sea", b"calm"))
        handler = Handler(point, interrupt)
        try:
            with handler:
                producer.close()
        except Interrupted:
            pass
        producer.close()
        assert delivery.done()
        assert delivery.result().offset == 0
        assert cluster.partition("sea").values() == [b"calm"]
        if not handler.has_run:
            break
    assert point > MIN_POINTS


def test_an_interrupted_close_continues_without_its_client() -> None:
    cluster = FakeCluster().in_memory()
    cluster.create("sea", [0])
    producer = SyncProducer(cluster.bootstrap(), connections=MemoryConnections(cluster))
    delivery = producer.ask(lambda client: client.send("sea", b"calm"))
    with pytest.raises(Interrupted), Handler(0, interrupt, at="wait"):
        producer.close()
    del producer
    until_s = time.monotonic() + HANGS_AFTER_S
    while not delivery.done() and time.monotonic() < until_s:
        time.sleep(0.001)
    assert delivery.result().offset == 0


def test_a_process_that_ends_after_an_interrupted_close_reports_its_records() -> None:
    script = """
import asyncio, os, signal, threading
from tidelog.client import SyncProducer
from unit.client.fake_broker import FakeCluster
from unit.client.memory_connections import MemoryConnections

cluster = FakeCluster().in_memory()
cluster.create("sea", [0])
producer = SyncProducer(
    cluster.bootstrap(),
    connections=MemoryConnections(cluster),
    on_delivery=lambda report: print(report.error.code.name, flush=True),
)
producer.ask(lambda client: client.partitions_of("sea"))
cluster.brokers[0].gate.clear()
producer.ask(lambda client: client.send("sea", b"calm"))
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
producer.close()
"""
    begun_s = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert time.monotonic() - begun_s < HANGS_AFTER_S
    assert ended.stdout == "CLIENT_CLOSED\n"
    assert "KeyboardInterrupt" in ended.stderr


def test_an_iteration_moves_the_position_record_by_record(sea: FakeCluster) -> None:
    with reading(sea) as consumer:
        read = list(itertools.islice(consumer, 7))
        assert_positions_follow(consumer, read)
        assert sum(positions(consumer)) == 7
        for record in consumer:
            read.append(record)
            assert_positions_follow(consumer, read)
            if len(read) == RECORDS - 1:
                break
        read += itertools.islice(iter(consumer), 1)
        assert_each_once(read)


@each_taking
def test_an_iteration_that_ends_early_has_consumed_what_it_returned(
    sea: FakeCluster, taking: str
) -> None:
    """Also by a second iterator, and with other calls between two steps of the first one."""
    with reading(sea) as consumer:
        records = iter(consumer)
        read: list[Record] = []
        while len(read) < RECORDS:
            read.append(next(records))
            if len(read) < RECORDS:
                read += records_of(TAKINGS[taking](consumer))
            assert_positions_follow(consumer, read)
        assert_each_once(read)


def test_an_iteration_continues_where_a_seek_or_an_assignment_leads(sea: FakeCluster) -> None:
    with reading(sea) as consumer:
        consumer.assign([("sea", 0)])
        records = iter(consumer)
        assert next(records).offset == 0
        consumer.seek(("sea", 0), 12)
        assert consumer.position(("sea", 0)) == 12
        assert [next(records).offset for _ in range(2)] == [12, 13]
        consumer.seek_to_beginning()
        assert [next(records).offset for _ in range(2)] == [0, 1]
        consumer.assign([("sea", 1)])
        record = next(records)
        assert (record.partition, record.offset) == (1, 0)
        consumer.assign([("sea", 0), ("sea", 1)])
        assert positions(consumer) == [0, 1]


def test_an_iterator_survives_an_exception_of_a_handler(sea: FakeCluster) -> None:
    with reading(sea) as consumer:
        records = iter(consumer)
        assert next(records).offset == 0
        with pytest.raises(Interrupted), Handler(0, interrupt, at="_next"):
            next(records)
        assert next(records).offset == 1


def test_threads_read_each_record_once_while_one_is_interrupted(sea: FakeCluster) -> None:
    with reading(sea) as consumer:
        read: list[Record] = []

        def reads() -> None:
            while records := consumer.poll(200, max_records=1):
                read.extend(records)

        threads = [InThread(reads) for _ in range(3)]
        for point in itertools.count():
            handler = Handler(point, interrupt)
            try:
                with handler:
                    records = consumer.poll(0, max_records=1)
            except Interrupted:
                continue
            read += records
            if not handler.has_run:
                break
        for thread in threads:
            assert thread.ended(HANGS_AFTER_S)
        assert sorted(places(read)) == sorted(set(places(read)))
        assert len(read) == RECORDS


@pytest.mark.parametrize("client", SYNC_CLIENTS, ids=lambda client: client.__name__)
@pytest.mark.parametrize("odd", [5, None, "describe", [1]], ids=repr)
def test_ask_rejects_a_function_that_returns_no_coroutine(client: type, odd: object) -> None:
    with silent(client) as (made, _), pytest.raises(TypeError, match="returns a coroutine"):
        made.ask(lambda _: odd)
