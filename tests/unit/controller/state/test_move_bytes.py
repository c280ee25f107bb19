"""Bytes of an operation's moves, as leaders report them."""

from __future__ import annotations

from tidelog.model import TopicPartition
from tidelog_controller.state.move_bytes import FRESH_MS, RATE_WINDOW_MS, MoveBytes
from tidelog_runtime.metadata.operations import OperationMove

NAMES = [TopicPartition("t", number) for number in range(3)]
MOVES = [
    OperationMove("t", "id", 0, (1, 2), (3, 4)),
    OperationMove("t", "id", 1, (1, 2), (1, 3)),
    OperationMove("t", "id", 2, (1, 2), (2, 1)),
]


def test_every_added_replica_is_copied_completely() -> None:
    moves = MoveBytes(MOVES)
    moves.measured(NAMES[0], 100, {3: 40, 4: 100}, 0)
    assert (moves.to_copy, moves.copied) == (200, 60)


def test_a_new_measurement_replaces_the_previous_one() -> None:
    moves = MoveBytes(MOVES)
    moves.measured(NAMES[1], 100, {3: 40}, 0)
    moves.measured(NAMES[1], 120, {3: 10}, 5)
    assert (moves.to_copy, moves.copied) == (120, 110)


def test_a_replica_that_the_leader_does_not_name_has_copied_nothing_yet() -> None:
    moves = MoveBytes(MOVES)
    moves.measured(NAMES[1], 100, {}, 0)
    assert moves.copied == 0


def test_a_move_that_finished_unmeasured_counts_as_copied_completely() -> None:
    moves = MoveBytes(MOVES)
    moves.done(NAMES[1])
    assert NAMES[1] in moves.unmeasured
    moves.measured(NAMES[1], 100, {}, 0)
    assert (moves.to_copy, moves.copied) == (100, 100)


def test_dropped_moves_do_not_count() -> None:
    moves = MoveBytes(MOVES)
    moves.measured(NAMES[0], 100, {3: 0, 4: 0}, 0)
    moves.dropped(NAMES[0])
    moves.dropped(NAMES[1])
    moves.measured(NAMES[1], 100, {}, 0)
    assert (moves.to_copy, moves.copied, moves.unmeasured) == (0, 0, {})


def test_unmeasured_moves_and_active_ones_with_old_measurements_are_due() -> None:
    moves = MoveBytes(MOVES)
    assert moves.stale([], 0) == NAMES[:2]
    moves.measured(NAMES[0], 100, {}, 0)
    assert moves.stale(NAMES[:2], FRESH_MS - 1) == [NAMES[1]]
    assert moves.stale(NAMES[:2], FRESH_MS) == [NAMES[1], NAMES[0]]
    assert moves.stale([], FRESH_MS) == [NAMES[1]]


def test_the_rate_is_that_of_the_last_minute() -> None:
    moves = MoveBytes(MOVES[1:2])
    for seconds in range(200):
        moves.measured(NAMES[1], 10_000, {3: 10_000 - min(seconds, 100) * 10}, seconds * 1_000)
        rate = moves.per_second(seconds * 1_000)
        assert rate == (10 if 0 < seconds <= 100 else rate)
    assert rate == 0
    assert RATE_WINDOW_MS < 99_000


def test_the_rate_is_unknown_while_moves_are_unmeasured() -> None:
    moves = MoveBytes(MOVES)
    moves.measured(NAMES[0], 100, {3: 0, 4: 0}, 0)
    moves.per_second(0)
    moves.measured(NAMES[0], 500, {3: 0, 4: 0}, 5_000)
    assert moves.per_second(5_000) == 0


def test_measurements_of_the_same_moves_are_kept() -> None:
    previous = MoveBytes(MOVES)
    previous.measured(NAMES[1], 100, {3: 40}, 0)
    moves = MoveBytes(MOVES[1:], previous)
    assert (moves.to_copy, moves.copied, moves.unmeasured) == (100, 60, {})
