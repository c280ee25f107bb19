"""In which order, and where, batches are checked."""

import asyncio
from collections.abc import Callable

import pytest

from tidelog.batch import new_batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Batch, Codec
from tidelog.record_batch import without_deltas
from tidelog_broker.requests.batch_checks import BatchChecks, is_costly
from unit.broker.broker_parts import on, settled


def batch(name: bytes, count: int = 1, codec: Codec = Codec.NONE) -> Batch:
    return new_batch(name, codec=codec, record_count=count, base_timestamp_ms=1, max_timestamp_ms=1)


CHEAP, COSTLY, BAD = batch(b"cheap"), batch(b"costly", 5_000), batch(b"bad")


class Thread:
    """`run_blocking`: what it is given waits until it is released."""

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

    def _check(self, checked: Batch) -> None:
        if checked is BAD:
            raise TidelogError(ErrorCode.INVALID_BATCH, "bad")

    def sends(self, name: str, number: int, *batches: Batch) -> asyncio.Task[None]:
        async def send() -> None:
            async with self.checks.checked({on(number): batches}) as checked:
                self.appended.append(name + "!" * len(checked.errors))

        return asyncio.create_task(send())


async def test_cheap_batches_are_checked_on_the_loop() -> None:
    requests = Requests()
    requests.sends("a", 0, CHEAP)
    requests.sends("b", 0, CHEAP, BAD)
    await settled()
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
    await settled()
    assert requests.appended == ["other"]
    requests.thread.work[1].set()
    await settled()
    assert requests.appended == ["other"]
    requests.thread.work[0].set()
    await settled()
    assert requests.appended == ["other", "costly!", "behind", "last"]
    requests.sends("later", 0, CHEAP)
    await settled()
    assert requests.appended[-1] == "later"


async def test_a_request_that_is_given_up_holds_up_no_other() -> None:
    requests = Requests()
    first = requests.sends("first", 0, COSTLY)
    requests.sends("second", 0, CHEAP)
    await settled()
    first.cancel()
    await settled()
    assert requests.appended == ["second"]


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
