import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tidelog.batch import new_damaged_batch
from tidelog.caller_limits import CallerLimits, Callers
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_OFFSET, TopicPartition
from tidelog.unsent_answers import ANSWER_LIMITS, UNSENT_BYTES_PER_CLIENT, CallAnswer
from tidelog_broker.core.partition.exchange import FetchAnswer
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.requests import fetch_wait
from tidelog_broker.requests.consumer_fetch import (
    WORK_OF_READ,
    WORK_PER_TURN,
    ConsumerFetch,
    FetchEntry,
    FetchOutcome,
    FetchWait,
)
from tidelog_broker.requests.purgatory import FETCH_WORK_PER_TURN, WaitingFetch
from unit.broker.broker_parts import (
    KEY,
    Replicas,
    append,
    broker_change,
    commit,
    fetch_by,
    on,
    topic_change,
    until_idle,
)
from unit.broker.fake_log import NAME, state
from unit.loop_turns import Turns


def entry(
    offset: int = 0, *, number: int = 0, known_epoch: int = -1, max_bytes: int = 1 << 20
) -> FetchEntry:
    return FetchEntry(on(number), "", known_epoch, offset, max_bytes)


def fetching(
    replicas: Replicas,
    *entries: FetchEntry,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
) -> asyncio.Task[list[FetchOutcome]]:
    consumer_fetch = ConsumerFetch(
        replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads
    )
    wait = FetchWait(max_wait_ms, min_bytes, max_bytes)
    return asyncio.create_task(consumer_fetch.handle(entries or (entry(),), wait))


def offsets(outcome: FetchOutcome) -> list[int]:
    assert outcome.answer is not None
    return [batch.header.base_offset for batch in outcome.answer.batches]


def sizes(outcomes: Sequence[FetchOutcome]) -> list[int]:
    return [len(offsets(outcome)) for outcome in outcomes]


def code_of(outcome: FetchOutcome) -> ErrorCode:
    assert outcome.error is not None
    return outcome.error.code


# -- waiting -----------------------------------------------------------------------------


async def test_available_records_are_answered_at_once() -> None:
    replicas = Replicas()
    commit(await replicas.lead())
    (outcome,) = await fetching(replicas)
    assert offsets(outcome) == [0]
    assert replicas.clock.monotonic_ms() == 0


async def test_growth_alone_does_not_wake_a_consumer_and_a_commit_does() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    asked = fetching(replicas)
    await until_idle()
    append(partition)
    fetch_by(partition, 2)
    await until_idle()
    assert not asked.done()
    fetch_by(partition, 3)
    (outcome,) = await asked
    assert offsets(outcome) == [0]
    assert replicas.clock.monotonic_ms() == 0


@pytest.mark.rule("offset-above-hw-is-valid")
async def test_at_the_deadline_the_answer_is_empty_and_has_the_high_watermark() -> None:
    replicas = Replicas()
    commit(await replicas.lead())
    (outcome,) = await fetching(replicas, entry(1), max_wait_ms=300)
    assert outcome.answer is not None
    assert (offsets(outcome), outcome.answer.high_watermark) == ([], 1)
    assert replicas.clock.monotonic_ms() == 300


async def test_no_fetch_waits_longer_than_the_bound() -> None:
    replicas = Replicas()
    await replicas.lead()
    await fetching(replicas, max_wait_ms=10**9)
    assert replicas.clock.monotonic_ms() == fetch_wait.MAX_WAIT_MS


async def test_min_bytes_are_waited_for() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    asked = fetching(replicas, min_bytes=10)
    commit(partition, b"12345")
    await until_idle()
    assert not asked.done()
    commit(partition, b"67890")
    (outcome,) = await asked
    assert offsets(outcome) == [0, 1]


async def test_less_than_min_bytes_is_answered_at_the_deadline() -> None:
    replicas = Replicas()
    commit(await replicas.lead(), b"12345")
    (outcome,) = await fetching(replicas, min_bytes=10, max_wait_ms=300)
    assert offsets(outcome) == [0]
    assert replicas.clock.monotonic_ms() == 300


async def test_min_bytes_0_does_not_wait() -> None:
    replicas = Replicas()
    await replicas.lead()
    (outcome,) = await fetching(replicas, min_bytes=0)
    assert offsets(outcome) == []
    assert replicas.clock.monotonic_ms() == 0


async def test_a_fetch_does_not_wait_for_more_than_an_answer_may_carry() -> None:
    replicas = Replicas()
    commit(await replicas.lead(), bytes(2000))
    await fetching(replicas, min_bytes=5000, max_bytes=1000)
    assert replicas.clock.monotonic_ms() == 0


async def test_the_end_of_the_leadership_is_answered_at_once() -> None:
    replicas = Replicas()
    replicas.cache.apply([topic_change(), broker_change(2)])
    await replicas.lead()
    asked = fetching(replicas)
    await until_idle()
    replicas.knows(state(leader=2, epoch=6), 11)
    (outcome,) = await asked
    assert code_of(outcome) is ErrorCode.NOT_LEADER
    assert outcome.error is not None
    assert outcome.error.leader == (2, 6, "10.0.0.2:7500")


async def test_an_error_of_one_partition_does_not_wait_for_data_of_the_others() -> None:
    replicas = Replicas()
    await replicas.lead()
    nowhere = FetchEntry(TopicPartition("nowhere", 0), "", -1, 0, 1000)
    fine, rejected = await fetching(replicas, entry(), nowhere)
    assert offsets(fine) == []
    assert code_of(rejected) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replicas.clock.monotonic_ms() == 0


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    replicas = Replicas()
    await replicas.lead()
    asked = fetching(replicas)
    await until_idle()
    assert len(replicas.purgatory) == 1
    asked.cancel()
    await asyncio.wait([asked])
    assert len(replicas.purgatory) == 0


# -- the answer --------------------------------------------------------------------------


async def test_an_offset_beyond_the_log_is_out_of_range_and_the_error_has_the_range() -> None:
    replicas = Replicas()
    commit(await replicas.lead())
    (outcome,) = await fetching(replicas, entry(7))
    assert code_of(outcome) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert outcome.error is not None
    assert "offsets 0 to 1, not 7" in outcome.error.message


async def test_only_fetches_below_the_log_start_count_as_outrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    commit(partition)
    commit(partition)
    monkeypatch.setattr(type(partition.log), "log_start_offset", property(lambda _: 1))
    fetch = ConsumerFetch(replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads)
    for offset in (0, 7):
        (outcome,) = await fetch.handle((entry(offset),), FetchWait(500, 1, 1 << 20))
        assert code_of(outcome) is ErrorCode.OFFSET_OUT_OF_RANGE
    [outrun] = fetch.outrun.recent(replicas.clock.monotonic_ms())
    assert (outrun.topic, outrun.count) == (NAME.topic, 1)
    assert "not 0" in outrun.message


@pytest.mark.rule("end-reported-after-epoch-start")
async def test_out_of_range_does_not_name_an_end_that_a_new_leader_does_not_know() -> None:
    replicas = Replicas()
    append(await replicas.lead())
    (partition,) = await replicas.take(state(epoch=6), revision=11)
    high_watermarks = []
    for caught_up in (False, True):
        if caught_up:
            for follower in (2, 3):
                fetch_by(partition, follower)
        (outcome,) = await fetching(replicas, entry(7))
        assert code_of(outcome) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert outcome.answer is not None
        high_watermarks.append(outcome.answer.high_watermark)
    assert high_watermarks == [NO_OFFSET, 1]


async def test_a_consumer_that_knows_an_older_epoch_is_fenced() -> None:
    replicas = Replicas()
    commit(await replicas.lead())
    (outcome,) = await fetching(replicas, entry(known_epoch=4))
    assert code_of(outcome) is ErrorCode.FENCED_LEADER_EPOCH


async def test_the_first_batch_is_complete_however_small_the_limit() -> None:
    replicas = Replicas()
    commit(await replicas.lead(), bytes(500), bytes(500))
    (outcome,) = await fetching(replicas, entry(max_bytes=10))
    assert offsets(outcome) == [0]


async def test_results_are_in_the_order_of_the_request_whichever_was_read_first() -> None:
    replicas = Replicas()
    for partition in await replicas.take(numbers=(0, 1, 2)):
        commit(partition, *[b"r"] * (partition.name.partition + 1))
    consumer_fetch = ConsumerFetch(
        replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads
    )
    for _ in range(3):
        outcomes = await consumer_fetch.handle(
            [entry(number=n) for n in (2, 0, 1)], FetchWait(0, 1, 1 << 20)
        )
        assert sizes(outcomes) == [3, 1, 2]


async def test_a_busy_partition_does_not_starve_those_behind_it() -> None:
    replicas = Replicas()
    for partition in await replicas.take(numbers=(0, 1)):
        commit(partition, bytes(100))
    consumer_fetch = ConsumerFetch(
        replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads
    )
    served = [
        sizes(await consumer_fetch.handle([entry(number=0), entry(number=1)], FetchWait(0, 1, 100)))
        for _ in range(2)
    ]
    assert sorted(served) == [[0, 1], [1, 0]]


async def test_a_damaged_segment_costs_only_its_partition_the_leader() -> None:
    replicas = Replicas()
    damaged, sound = await replicas.take(numbers=(0, 1))
    commit(damaged, bytes(100))
    commit(sound, bytes(100))
    segment = next(
        inode
        for path, inode in replicas.memory.names.items()
        if path.name.endswith(".log") and path.parent.name.startswith(f"{NAME.topic}-0")
    )
    segment.data[5] ^= 0xFF
    rejected, fine = await fetching(replicas, entry(number=0), entry(number=1))
    assert code_of(rejected) is ErrorCode.LEADER_NOT_AVAILABLE
    assert (damaged.leading, [key for key, _ in replicas.failures]) == (None, [KEY])
    assert offsets(fine) == [0]


@pytest.mark.parametrize("is_coming", [True, False])
async def test_readers_wait_for_a_batch_that_a_follower_may_have(*, is_coming: bool) -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    log = replicas.logs.log_of(KEY)
    assert log is not None
    log.append(
        [new_damaged_batch(b"", first_offset=0, next_offset=2, leader_epoch=5, append_time_ms=1)]
    )
    for follower in (2, 3):
        fetch_by(partition, follower)
    fetch = ConsumerFetch(
        replicas.manager,
        replicas.purgatory,
        replicas.clock,
        replicas.cold_reads,
        lambda _, found: is_coming and found == (0, 2),
    )
    (outcome,) = await fetch.handle([entry()], FetchWait(500, 1, 1 << 20))
    if is_coming:
        assert (offsets(outcome), outcome.error) == ([], None)
    else:
        assert code_of(outcome) is ErrorCode.RECORDS_DAMAGED


async def test_partitions_that_are_read_yield_more_than_those_without_news() -> None:
    """A read may open a file; a partition without news costs a few microseconds."""
    replicas, count = Replicas(), 12
    for number in range(count):
        commit(await replicas.lead(number))
    async with Turns() as turns:
        await fetching(replicas, *[entry(1, number=n) for n in range(count)], max_wait_ms=0)
        without_news = turns.taken()
        await fetching(replicas, *[entry(0, number=n) for n in range(count)])
        assert turns.taken() >= without_news + count * WORK_OF_READ // WORK_PER_TURN


# -- many waiting fetches ----------------------------------------------------------------


class Reads:
    """Counts reads of partitions, and the most in one turn of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[TopicPartition] = []
        self.most_in_a_turn = self._in_this_turn = 0
        read = Partition.read_for_consumer

        def counted(partition: Partition, *args: Any, **options: Any) -> FetchAnswer:
            self.names.append(partition.name)
            self._count()
            return read(partition, *args, **options)

        monkeypatch.setattr(Partition, "read_for_consumer", counted)

    def _count(self) -> None:
        if self._in_this_turn == 0:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._in_this_turn += 1
        self.most_in_a_turn = max(self.most_in_a_turn, self._in_this_turn)

    def _next_turn(self) -> None:
        self._in_this_turn = 0


async def many_waiting(
    replicas: Replicas,
    fetches: int,
    partitions: int,
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 10,
) -> list[asyncio.Task[list[FetchOutcome]]]:
    fetch = ConsumerFetch(replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads)
    entries = [entry(number=number) for number in range(partitions)]
    waiting = FetchWait(max_wait_ms, min_bytes, 1 << 20)
    tasks = [asyncio.create_task(fetch.handle(entries, waiting)) for _ in range(fetches)]
    await until_idle()
    return tasks


async def test_a_woken_fetch_reads_only_the_partition_that_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas = Replicas()
    partitions = [await replicas.lead(number) for number in range(50)]
    (task,) = await many_waiting(replicas, 1, 50)
    reads = Reads(monkeypatch)
    commit(partitions[7], b"12345")
    await until_idle()
    assert reads.names == [on(7)]
    commit(partitions[8], b"12345")
    outcomes = await task
    # The answer is read once: a waiting fetch keeps no records.
    assert (sizes(outcomes)[7:9], len(reads.names)) == ([1, 1], 2 + 50)


async def test_fetches_that_are_woken_together_share_the_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    tasks = await many_waiting(replicas, 200, 1)
    reads = Reads(monkeypatch)
    commit(partition, b"1234567890")
    await asyncio.gather(*tasks)
    assert len(reads.names) == 200
    assert reads.most_in_a_turn <= FETCH_WORK_PER_TURN


@pytest.mark.parametrize("way", ["deadline", "new"])
async def test_fetches_that_read_all_partitions_share_the_turns(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    replicas = Replicas()
    for number in range(10):
        commit(await replicas.lead(number), b"1")
    wait = {"max_wait_ms": 0} if way == "new" else {"min_bytes": 1000}
    reads = Reads(monkeypatch)
    await asyncio.gather(*await many_waiting(replicas, 40, 10, **wait))
    assert len(reads.names) >= 400
    assert reads.most_in_a_turn <= FETCH_WORK_PER_TURN


async def test_a_move_wakes_a_bounded_number_of_fetches_in_a_turn() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    woken: list[WaitingFetch] = []

    class Noting(WaitingFetch):
        def moved(self, name: TopicPartition) -> None:
            assert name == NAME
            woken.append(self)

    waits = [Noting(replicas.purgatory.fetch_turns) for _ in range(300)]
    for wait in waits:
        replicas.purgatory.add_fetch([NAME], wait)
    for _ in range(3):
        commit(partition)
    assert len(woken) <= FETCH_WORK_PER_TURN
    await until_idle()
    # Moves that wait for a turn are one.
    assert Counter(woken) == dict.fromkeys(waits, 2)


async def test_fetches_that_are_cancelled_together_are_removed() -> None:
    replicas = Replicas()
    await replicas.lead()
    tasks = await many_waiting(replicas, 200, 1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until_idle()
    assert len(replicas.purgatory) == 0


# -- room for answers --------------------------------------------------------------------


async def fetched_with(
    replicas: Replicas, answer: CallAnswer, max_wait_ms: int
) -> list[FetchOutcome]:
    fetch = ConsumerFetch(replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads)
    return await fetch.handle([entry()], FetchWait(max_wait_ms, 1, 1 << 20, answer))


async def test_an_answer_is_as_large_as_its_client_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas, callers = Replicas(), Callers(CallerLimits())
    partition = await replicas.lead()
    for _ in range(4):
        commit(partition, bytes(100))
    monkeypatch.setitem(ANSWER_LIMITS, UNSENT_BYTES_PER_CLIENT, 250)
    first, second, third, fourth = (
        callers.new_answer(f"ipv4:10.0.0.1:{port}") for port in range(1, 5)
    )
    for answer in (first, second, third):
        assert sizes(await fetched_with(replicas, answer, 0)) == [1]
    with pytest.raises(TidelogError) as caught:
        await fetched_with(replicas, fourth, 300)
    assert (caught.value.code, replicas.clock.monotonic_ms()) == (ErrorCode.TOO_MANY_REQUESTS, 300)
    assert callers.rejected[UNSENT_BYTES_PER_CLIENT] == 1
    other = callers.new_answer("ipv4:10.0.0.2:1")
    monkeypatch.setitem(ANSWER_LIMITS, UNSENT_BYTES_PER_CLIENT, 10_000)
    assert sizes(await fetched_with(replicas, other, 0)) == [4]
    monkeypatch.setitem(ANSWER_LIMITS, UNSENT_BYTES_PER_CLIENT, 250)
    callers.answers.end(first)
    assert sizes(await fetched_with(replicas, fourth, 300)) == [1]


async def test_a_waiting_fetch_takes_no_room() -> None:
    replicas, callers = Replicas(), Callers(CallerLimits())
    partition = await replicas.lead()
    commit(partition, bytes(5))
    answer = callers.new_answer("ipv4:10.0.0.1:1")
    fetch = ConsumerFetch(replicas.manager, replicas.purgatory, replicas.clock, replicas.cold_reads)
    task = asyncio.create_task(fetch.handle([entry()], FetchWait(500, 10, 1 << 20, answer)))
    await until_idle()
    assert callers.answers.size == 0
    await task
    assert callers.answers.size == 5
