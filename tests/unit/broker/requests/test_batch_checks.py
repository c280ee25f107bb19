"""The order in which batches are checked, and whether on the loop or in a thread."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.batch import new_batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Batch, Codec, TopicPartition
from tidelog.record_batch import encode, without_deltas
from tidelog_broker.requests import batch_checks
from tidelog_broker.requests.batch_checks import (
    CHECKS_AT_ONCE,
    BatchChecks,
    DecodedBytesError,
    is_costly,
)
from unit.broker.broker_parts import on, until_idle


def batch(name: bytes, count: int = 1, codec: Codec = Codec.NONE) -> Batch:
    return new_batch(name, codec=codec, record_count=count, base_timestamp_ms=1, max_timestamp_ms=1)


CHEAP, COSTLY, BAD = batch(b"cheap"), batch(b"costly", 5_000), batch(b"bad")


class Thread:
    """`run_blocking` whose work waits until it is released."""

    def __init__(self) -> None:
        self.work: list[asyncio.Event] = []

    async def run_blocking(self, work: Callable[[], None]) -> None:
        released = asyncio.Event()
        self.work.append(released)
        await released.wait()
        work()


class Requests:
    def __init__(self) -> None:
        self.thread = Thread()
        self.checks = BatchChecks(self._check, without_deltas, self.thread.run_blocking)
        self.appended: list[str] = []

    def _check(self, checked: Batch) -> int:
        if checked is BAD:
            raise TidelogError(ErrorCode.INVALID_BATCH, "bad")
        return len(checked.records)

    def sends(
        self, name: str, number: int, *batches: Batch, timeout_ms: int = 10_000
    ) -> asyncio.Task[None]:
        async def send() -> None:
            sent = {on(number): batches}
            async with self.checks.checked(sent, timeout_ms=timeout_ms) as checked:
                self.appended.append(name + "!" * len(checked.errors))

        return asyncio.create_task(send())


async def test_cheap_batches_are_checked_on_the_loop() -> None:
    requests = Requests()
    requests.sends("a", 0, CHEAP)
    requests.sends("b", 0, CHEAP, BAD)
    await until_idle()
    assert requests.appended == ["a", "b!"]
    assert requests.thread.work == []


async def test_a_cheap_request_does_not_overtake_a_costly_one_of_its_partition() -> None:
    requests = Requests()
    for name, number, of_partition in (
        ("costly", 0, (COSTLY, BAD)),
        ("behind", 0, (CHEAP,)),
        ("other", 1, (CHEAP,)),
        ("last", 0, (COSTLY,)),
    ):
        requests.sends(name, number, *of_partition)
    await until_idle()
    assert requests.appended == ["other"]
    requests.thread.work[1].set()
    await until_idle()
    assert requests.appended == ["other"]
    requests.thread.work[0].set()
    await until_idle()
    assert requests.appended == ["other", "costly!", "behind", "last"]
    requests.sends("later", 0, CHEAP)
    await until_idle()
    assert requests.appended[-1] == "later"


async def test_a_cancelled_request_holds_up_no_other() -> None:
    requests = Requests()
    first = requests.sends("first", 0, COSTLY)
    requests.sends("second", 0, CHEAP)
    await until_idle()
    first.cancel()
    await until_idle()
    assert requests.appended == ["second"]


@pytest.mark.parametrize("ends_by", ["timeout", "cancel"])
async def test_a_request_that_stops_waiting_lets_no_other_overtake_those_ahead(
    ends_by: str,
) -> None:
    requests = Requests()
    requests.sends("first", 0, COSTLY)
    second = requests.sends("second", 0, CHEAP, timeout_ms=500)
    requests.sends("third", 0, CHEAP)
    await until_idle()
    if ends_by == "cancel":
        second.cancel()
    await asyncio.sleep(1)
    assert second.done()
    if ends_by == "timeout":
        error = second.exception()
        assert isinstance(error, TidelogError)
        assert (error.code, error.outcome_unknown) == (ErrorCode.TOO_MANY_REQUESTS, False)
    last = requests.sends("last", 0, CHEAP)
    other = requests.sends("gone", 0, CHEAP, timeout_ms=500)
    await asyncio.sleep(1)
    assert other.done()
    requests.sends("later", 0, CHEAP)
    await until_idle()
    assert (requests.appended, last.done()) == ([], False)
    requests.thread.work[0].set()
    await until_idle()
    assert requests.appended == ["first", "third", "last", "later"]
    assert requests.checks._last == {}


async def test_requests_that_stop_waiting_one_after_another_let_no_other_overtake() -> None:
    requests = Requests()
    requests.sends("first", 0, COSTLY)
    requests.sends("second", 0, CHEAP, timeout_ms=500)
    requests.sends("third", 0, CHEAP, timeout_ms=1_000)
    await asyncio.sleep(2)
    requests.sends("last", 0, CHEAP)
    await until_idle()
    assert requests.appended == []
    requests.thread.work[0].set()
    await until_idle()
    assert requests.appended == ["first", "last"]
    assert requests.checks._last == {}


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4, Codec.GZIP])
async def test_a_request_with_too_many_decompressed_bytes_is_rejected_before_its_checks(
    codec: Codec,
) -> None:
    requests = Requests()
    bomb = encode([bytes(60 << 20)], timestamps_ms=1, codec=codec)
    task = requests.sends("bomb", 0, *[bomb] * 5)
    await until_idle()
    error = task.exception()
    assert isinstance(error, TidelogError)
    assert error.code is ErrorCode.INVALID_REQUEST
    assert requests.thread.work == []
    requests.sends("fine", 1, *[bomb] * 4)
    await until_idle()
    assert len(requests.thread.work) == 1


async def test_bytes_that_no_frame_states_count_once_they_are_decompressed() -> None:
    checks = BatchChecks(lambda _: 60 << 20, without_deltas, Thread().run_blocking)
    with pytest.raises(DecodedBytesError):
        async with checks.checked({on(0): [CHEAP] * 5}):
            pass


@pytest.mark.parametrize(
    ("batches", "costly"),
    [
        ([CHEAP] * 32, False),
        ([CHEAP] * 33, True),
        ([batch(bytes(200_000))] * 2, False),
        ([batch(bytes(200_000))] * 3, True),
        ([batch(bytes(300_000))], True),
        ([batch(b"no frame", codec=Codec.ZSTD)], True),
    ],
)
def test_cost_is_estimated_from_counts_and_sizes(batches: list[Batch], costly: bool) -> None:
    assert is_costly([batches]) is costly


@pytest.mark.parametrize("codec", Codec)
def test_batches_that_are_cheap_alone_and_costly_together_are_checked_in_a_thread(
    codec: Codec,
) -> None:
    headers = {record: [("", b"")] * 1_000 for record in range(50)}
    of_headers = encode([b"v"] * 50, timestamps_ms=1, headers=headers, codec=codec)
    of_zeros = encode([bytes(200 << 10)], timestamps_ms=1, codec=codec)
    for sent in (of_headers, of_zeros):
        assert not is_costly([[sent]])
        assert is_costly([[sent], [sent, sent], [sent]])


def test_text_full_of_bytes_that_equal_a_header_tag_is_cheap() -> None:
    """Every digit 2 equals that tag."""
    batch = encode([b"222%d" % n for n in range(2_000)], timestamps_ms=1)
    assert not is_costly([[batch] * 8])


async def test_a_very_large_request_is_checked_in_several_turns() -> None:
    requests = Requests()
    large = encode([bytes(40 << 20)], timestamps_ms=1, codec=Codec.ZSTD)
    requests.sends("bomb", 0, *[large] * 3, BAD)
    for number in range(1, CHECKS_AT_ONCE):
        requests.sends(f"bomb {number}", number, large, large)
    await until_idle()
    requests.sends("other", 9, COSTLY)
    await until_idle()
    threads = requests.thread.work
    assert len(threads) == CHECKS_AT_ONCE
    threads[0].set()
    await until_idle()
    threads[CHECKS_AT_ONCE].set()
    await until_idle()
    assert requests.appended == ["other"]
    while unreleased := [thread for thread in threads if not thread.is_set()]:
        for thread in unreleased:
            thread.set()
        await until_idle()
    assert requests.appended[-1] == "bomb!"


@given(sizes=st.lists(st.lists(st.integers(1, 120), min_size=1, max_size=6), max_size=5))
def test_turns_hold_each_batch_once_in_order(sizes: list[list[int]]) -> None:
    megabyte = 1 << 20
    batches = {
        on(number): [batch(bytes(size), size) for size in of_partition]
        for number, of_partition in enumerate(sizes)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_checks, "decoded_size", lambda one: one.header.record_count * megabyte)
        turns = list(batch_checks.turns_of(batches))
    found: dict[TopicPartition, list[Batch]] = {}
    for turn in turns:
        pieces = [piece for _, of_piece in turn for piece in of_piece]
        size = sum(piece.header.record_count for piece in pieces)
        assert len(pieces) == 1 or size * megabyte <= batch_checks.BYTES_PER_CHECK
        for name, of_piece in turn:
            found.setdefault(name, []).extend(of_piece)
    assert found == batches
