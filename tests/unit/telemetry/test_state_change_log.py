from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable

import pytest
import structlog

from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause, Change, Kind, Stage, StateChange
from tidelog.state_changes.json_form import from_object
from tidelog_runtime.telemetry import state_change_log
from tidelog_runtime.telemetry.logging import configure_logging
from tidelog_runtime.telemetry.state_change_log import Filter, StateChangeLog

SEA = TopicPartition("sea", 0)


class FixedClock:
    now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


@pytest.fixture
def lines() -> io.StringIO:
    stream = io.StringIO()
    configure_logging("broker", broker_id=2, stream=stream)
    return stream


@pytest.fixture(autouse=True)
def _reset() -> object:
    yield
    structlog.reset_defaults()


def log(capacity: int = 10) -> StateChangeLog:
    return StateChangeLog("broker-2", FixedClock(), capacity)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the condition. Pauses are longer where the loop is late, as on a loaded machine."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the condition is of the code under test
            await asyncio.sleep(state_change_log.PAUSE_SECONDS)


def test_a_log_line_is_the_state_change_itself(lines: io.StringIO) -> None:
    change_log = log()
    change_log.emit(
        Kind.BECOME_LEADER,
        Stage.RECEIVED,
        change=Change("c1-2", Cause.BROKER_CRASHED, 990, "ab"),
        name=SEA,
        topic_id="id",
        broker=2,
        revision=7,
        details={"isr": [1, 2]},
    )
    line = json.loads(lines.getvalue())
    assert line["event"] == "state_change"
    assert from_object(line) == change_log.recent(Filter())[0]
    assert line["duration_ms"] == 10


def test_the_oldest_events_are_evicted_first(lines: io.StringIO) -> None:  # noqa: ARG001
    change_log = log(capacity=2)
    for revision in (1, 2, 3):
        change_log.emit(Kind.ELECTION, Stage.COMPLETED, name=SEA, revision=revision)
    assert [change.revision for change in change_log.recent(Filter())] == [2, 3]
    assert change_log.reported == 3


def test_the_ring_reaches_back_to_the_start_until_it_evicts_events() -> None:
    change_log = log(capacity=2)
    clock = change_log._clock
    assert isinstance(clock, FixedClock)
    reached = []
    for clock.now_ms in (2_000, 3_000, 4_000):
        change_log.emit(Kind.ELECTION, Stage.COMPLETED, name=SEA)
        reached.append(change_log.oldest_kept_ms)
    assert reached == [1_000, 1_000, 3_000]


@pytest.mark.parametrize(
    ("selected", "passes"),
    [
        (Filter(), True),
        (Filter(topic="sea", partition=0), True),
        (Filter(topic="sea", partition=1), False),
        (Filter(topic="lake"), False),
        (Filter(broker=2), True),
        (Filter(broker=1), False),
        (Filter(kinds=frozenset({"election"})), False),
        (Filter(since_ms=1_001), False),
    ],
)
def test_state_changes_are_filtered(selected: Filter, passes: bool) -> None:
    change = StateChange(
        1_000, "broker-2", Kind.STOP, Stage.COMPLETED, topic="sea", partition=0, broker=2
    )
    assert selected.passes(change) is passes


async def test_lines_are_written_in_later_loop_turns_with_pauses_between(
    lines: io.StringIO,
) -> None:
    change_log = log(1_000)
    for _ in range(state_change_log.MAX_LINES_PER_SLICE + 1):
        change_log.emit(Kind.ELECTION, Stage.REQUESTED, name=SEA)
    assert lines.getvalue() == ""
    await asyncio.sleep(0)
    assert lines.getvalue().count("\n") == state_change_log.MAX_LINES_PER_SLICE
    change_log.emit(Kind.ELECTION, Stage.REQUESTED, name=SEA)
    await asyncio.sleep(0)
    assert lines.getvalue().count("\n") == state_change_log.MAX_LINES_PER_SLICE
    await until(lambda: lines.getvalue().count("\n") > state_change_log.MAX_LINES_PER_SLICE + 1)
    assert lines.getvalue().count("\n") == state_change_log.MAX_LINES_PER_SLICE + 2


async def test_a_flush_leaves_no_line_behind(lines: io.StringIO) -> None:
    change_log = log()
    change_log.emit(Kind.ELECTION, Stage.REQUESTED, name=SEA)
    change_log.flush()
    assert lines.getvalue().count("\n") == 1
    await asyncio.sleep(0)
    assert lines.getvalue().count("\n") == 1


async def test_a_slow_follower_is_informed_how_many_events_it_missed(
    lines: io.StringIO,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_change_log, "MAX_QUEUED_FOR_FOLLOWER", 2)
    change_log = log()
    follower = change_log.follow(Filter())
    for revision in (1, 2, 3):
        change_log.emit(Kind.ELECTION, Stage.COMPLETED, name=SEA, revision=revision)
    changes, dropped = await follower.next()
    assert [change.revision for change in changes] == [1, 2]
    assert dropped == 1


async def test_an_event_logged_after_a_batch_comes_after_all_of_it(lines: io.StringIO) -> None:
    change_log = log(capacity=1_000)
    one = StateChange(1, "broker-2", Kind.ELECTION, Stage.COMPLETED)
    many = 3 * state_change_log.MAX_KEPT_PER_SLICE
    change_log.add_each((one._replace(revision=number) for number in range(many)), many)
    change_log.emit(Kind.BROKER_LEFT, Stage.COMPLETED)
    assert change_log.recent(Filter()) == []
    await until(lambda: len(change_log.recent(Filter())) > many)
    kept = change_log.recent(Filter())
    assert [change.revision for change in kept[:-1]] == list(range(many))
    assert kept[-1].kind is Kind.BROKER_LEFT
    change_log.flush()
    assert len(lines.getvalue().splitlines()) == many + 1


def lost(lines: io.StringIO) -> list[tuple[int, int]]:
    """The log lines about events that were dropped or not written."""
    events = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [
        (line["not_kept"], line["not_written"])
        for line in events
        if line["event"] == "state_changes_lost"
    ]


async def test_lines_beyond_the_limit_are_counted_and_reported_in_one_line(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_change_log, "MAX_UNWRITTEN", 2)
    change_log = log()
    for _ in range(5):
        change_log.emit(Kind.ELECTION, Stage.COMPLETED, name=SEA)
    assert len(change_log.recent(Filter())) == 5
    await asyncio.sleep(0)
    assert lines.getvalue().count('"kind"') == 2
    assert lost(lines) == [(0, 3)]


async def test_a_batch_beyond_the_limit_is_counted_and_reported_in_one_line(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_change_log, "MAX_ARRIVING", 3)
    change_log = log()
    one = StateChange(1, "broker-2", Kind.ELECTION, Stage.COMPLETED)
    for _ in range(2):
        change_log.add_each((one, one), 2)
    change_log.flush()
    assert len(change_log.recent(Filter())) == 2
    assert lost(lines) == [(2, 0)]


async def test_consuming_kept_lines_makes_room_again(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_change_log, "MAX_ARRIVING", 2)
    change_log = log()
    one = StateChange(1, "broker-2", Kind.ELECTION, Stage.COMPLETED)
    for _ in range(3):
        change_log.add_each((one, one), 2)
        change_log.flush()
    assert len(change_log.recent(Filter())) == 6
    assert lost(lines) == []
