"""Garbage is collected when a service is idle, and eventually in any case."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tidelog_runtime import garbage_collection
from tidelog_runtime.garbage_collection import (
    LONGEST_WAIT_S,
    MIN_NEW_OBJECTS,
    PASSES_PER_FULL,
    PASSES_PER_FULL_IF_BUSY,
    PASSES_PER_GENERATION_1,
    QUIET_S,
    QUIET_SHARE,
    THRESHOLDS,
    CollectionSchedule,
    idle_garbage_collection,
)

IDLE, BUSY = QUIET_SHARE / 2, 1.0
TICK_S = 0.1


@pytest.fixture
def collections() -> CollectionSchedule:
    return CollectionSchedule(now_s=0)


def collection_times(
    collections: CollectionSchedule, share: float, new_objects: int, since_s: float, for_s: float
) -> list[float]:
    """The times of collections, in seconds from then on."""
    ticks = range(1, round(for_s / TICK_S) + 1)
    due = [collections.due(since_s + n * TICK_S, share, new_objects) for n in ticks]
    return [round(n * TICK_S, 3) for n, look in zip(ticks, due, strict=True) if look is not None]


def test_few_new_objects_do_not_cause_a_collection(collections: CollectionSchedule) -> None:
    assert collection_times(collections, IDLE, MIN_NEW_OBJECTS - 1, 0, 100) == []


def test_an_idle_service_collects_at_once(collections: CollectionSchedule) -> None:
    collection_times(collections, IDLE, 0, 0, 10)
    assert collection_times(collections, IDLE, MIN_NEW_OBJECTS, 10, TICK_S) == [TICK_S]


def test_a_burst_delays_the_collection(collections: CollectionSchedule) -> None:
    """This holds however long the service was idle before, and although it waits in between."""
    collection_times(collections, IDLE, 0, 0, 100)
    assert collection_times(collections, BUSY, 9 * MIN_NEW_OBJECTS, 100, 1) == []
    assert collection_times(collections, IDLE, 9 * MIN_NEW_OBJECTS, 101, QUIET_S / 2) == []
    assert collection_times(collections, BUSY, 9 * MIN_NEW_OBJECTS, 101.5, 1) == []
    (first, *_) = collection_times(collections, IDLE, 9 * MIN_NEW_OBJECTS, 102.5, 10)
    assert first == pytest.approx(QUIET_S, abs=TICK_S)


def test_a_permanently_busy_service_collects_occasionally(collections: CollectionSchedule) -> None:
    at = collection_times(collections, BUSY, MIN_NEW_OBJECTS, 0, 20)
    assert [later - earlier for earlier, later in pairwise(at)] == pytest.approx(
        [LONGEST_WAIT_S] * 2, abs=2 * TICK_S
    )


def test_long_lived_objects_are_examined_later(collections: CollectionSchedule) -> None:
    due = [
        collections.due(10 + s, IDLE, MIN_NEW_OBJECTS) for s in range(2 * PASSES_PER_GENERATION_1)
    ]
    assert due == 2 * [*(PASSES_PER_GENERATION_1 - 1) * [0], 1]


@pytest.mark.parametrize(
    ("share", "each"), [(IDLE, PASSES_PER_FULL), (BUSY, PASSES_PER_FULL_IF_BUSY)]
)
def test_everything_is_examined_in_the_end(
    collections: CollectionSchedule, share: float, each: int
) -> None:
    due = [
        collections.due(10 + n * LONGEST_WAIT_S / 2, share, MIN_NEW_OBJECTS)
        for n in range(7 * each)
    ]
    collection_times = [look for look in due if look is not None]
    full = [at for at, look in enumerate(collection_times, 1) if look == 2]
    assert full[:2] == [each, 2 * each]


@pytest.fixture
def thresholds_stay() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


class Knot:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("thresholds_stay")
def test_reference_cycles_are_freed_while_the_service_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "INTERVAL_S", 0.01)
    monkeypatch.setattr(garbage_collection, "MIN_NEW_OBJECTS", 1)
    monkeypatch.setattr(garbage_collection, "QUIET_S", 0)

    async def service() -> None:
        gone = asyncio.Event()
        weakref.finalize(Knot(), gone.set)
        assert not gone.is_set()
        async with idle_garbage_collection():
            assert gc.get_threshold() == THRESHOLDS
            await asyncio.wait_for(gone.wait(), 10)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(service())
