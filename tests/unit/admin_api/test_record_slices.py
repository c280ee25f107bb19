"""Reads and searches of records hold the event loop for a bounded amount of work at a time.

Work is counted in function calls, and the clock that ends slices counts them too, so that the
results depend neither on the machine nor on its load."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from tidelog.model import Record, TopicPartition
from tidelog_admin_api import record_search
from tidelog_admin_api.bodies import record_bodies
from tidelog_admin_api.bodies.record_bodies import RecordPage, page_json
from tidelog_admin_api.entry_counter import counting_entries
from tidelog_admin_api.record_criteria import MAX_EXAMINED_ENTRIES, Criteria, parse_path
from tidelog_admin_api.record_encoding import Encoding, decoding
from tidelog_admin_api.record_search import RecordSearch, SearchBound, SearchRange
from tidelog_admin_api.resources import search
from tidelog_runtime.cooperative import SLICE_SECONDS, TimeSlices
from unit.admin_api.fake_operations import FakeConsumer
from unit.admin_api.test_event_hub import ManualClock

# A third of a microsecond for each call, as in `edge/test_bounded_slices.py`.
CALLS_PER_SECOND = 3_000_000
CALLS_PER_SLICE = round(SLICE_SECONDS * CALLS_PER_SECOND)
# The last item of a slice may exceed it. None of these takes more calls.
MAX_CALLS = CALLS_PER_SLICE + 2_000
MAX_SCANNED = SearchBound(max_matches=1_000, max_scanned=100_000, timeout_ms=60_000)


class Work:
    """Function calls, in all and since the event loop's last turn; `most`: of one turn."""

    def __init__(self) -> None:
        self.calls = self.most = self.since_turn = 0

    def seconds(self) -> float:
        return self.calls / CALLS_PER_SECOND

    def turn(self) -> None:
        self.most, self.since_turn = max(self.most, self.since_turn), 0

    def _count(self, frame: Any, event: str, argument: Any) -> None:  # noqa: ARG002
        if event in ("call", "c_call"):
            self.calls += 1
            self.since_turn += 1

    async def of(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Counts the calls of the coroutine."""

        async def others() -> None:
            while True:
                self.turn()
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        await asyncio.sleep(0)
        sys.setprofile(self._count)
        try:
            await coroutine
        finally:
            sys.setprofile(None)
        self.turn()
        beside.cancel()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    counted = Work()
    for module in (record_bodies, record_search, search):
        monkeypatch.setattr(module, "TimeSlices", partial(TimeSlices, counted.seconds))
    return counted


def stored(offset: int, value: bytes, headers: int = 0) -> Record:
    return Record("sea", 0, offset, 1_000, b"north", value, (("source", b"gps"),) * headers, 3)


def page() -> RecordPage:
    return RecordPage(
        items=[],
        first_offset=0,
        next_offset=0,
        previous=None,
        next=None,
        log_start_offset=0,
        end_offset=0,
        damaged=[],
    )


ORDER = json.dumps({"order": {"items": [{"name": "buoy"}] * 20}}).encode()
PAGES = {
    "many small records": [stored(n, b"calm") for n in range(1_000)],
    "many headers of many records": [stored(n, b"calm", headers=8) for n in range(1_000)],
    "many headers of one record": [stored(0, b"calm", headers=8_000)],
    "many JSON values": [stored(n, ORDER) for n in range(1_000)],
}


@pytest.mark.parametrize("records", PAGES.values(), ids=PAGES)
async def test_a_page_is_made_in_slices(work: Work, records: list[Record]) -> None:
    await work.of(page_json(page(), records, Encoding.JSON))
    assert CALLS_PER_SLICE / 2 < work.most <= MAX_CALLS < work.calls


SEARCHES = {
    "records that match": (Criteria(), b"calm"),
    "records that do not": (Criteria(value_has=b"storm"), b"calm"),
    "elements of JSON": (Criteria(path=parse_path("order.items[19].name"), equals="x"), ORDER),
}


@pytest.mark.parametrize(("criteria", "value"), SEARCHES.values(), ids=SEARCHES)
async def test_records_are_searched_in_slices(work: Work, criteria: Criteria, value: bytes) -> None:
    consumer = FakeConsumer([stored(n, value) for n in range(4_000)])
    sea = [TopicPartition("sea", 0)]
    bound = MAX_SCANNED
    running = RecordSearch(consumer, sea, SearchRange(), criteria, bound, ManualClock())

    async def read() -> None:
        async for _ in search._lines(running.events(), Encoding.JSON):
            pass

    await work.of(read())
    assert CALLS_PER_SLICE / 2 < work.most <= MAX_CALLS < work.calls


def test_a_json_value_is_read_and_examined_in_steps() -> None:
    """Each step is one call of a library, which no slice can interrupt."""
    assert len(list(decoding(ORDER, Encoding.JSON))) >= 2
    assert len(list(Criteria(path=("order",)).examining(stored(0, ORDER)))) == 2
    strings = b'","' * (1 << 18)
    assert len(list(counting_entries(strings, MAX_EXAMINED_ENTRIES))) >= 4


async def test_the_json_of_a_page_is_that_of_its_items(work: Work) -> None:
    records = [stored(n, b'{"tide": "ebb", "items": []}', headers=1) for n in range(3)]
    document: Any = {}

    async def made() -> None:
        document.update(json.loads(await page_json(page(), records, Encoding.JSON)))

    await work.of(made())
    assert [item["offset"] for item in document["items"]] == [0, 1, 2]
    assert document["items"][0]["value"] == {"tide": "ebb", "items": []}
    assert RecordPage.model_validate(document).model_dump() == document
