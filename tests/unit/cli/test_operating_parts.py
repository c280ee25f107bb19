"""Parsing of moves, and the display of plans and progress, without a cluster."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from tidelog.admin_messages import Move, MoveProgress, Operation, Plan, Progress
from tidelog.cli.exit_status import UsageError
from tidelog.cli.operating.bars import BarsView, bars
from tidelog.cli.operating.move_files import parse_moves
from tidelog.cli.operating.operation_view import end_text, progress_line, progress_text
from tidelog.cli.operating.plan_view import plan_headline, plan_lines

MOVE = Move("sea", 4, (3, 2), (1, 2), "id")
PROGRESS = Progress(12, 3, 2, 0, 8, 2, 1_700_000_200_000)
NOW_MS = 1_700_000_000_000
OPERATION = Operation(
    *("grow", "rebalance", "running", "", "{}", "ann", "", NOW_MS, 0, "", PROGRESS, 5)
)


@pytest.mark.parametrize(
    "document",
    [
        {"plan": {"moves": [{"topic": "sea", "partition": 4, "target": [3, 2]}]}},
        {"moves": [{"topic": "sea", "partition": 4, "target": [3, 2]}]},
        [{"topic": "sea", "partition": 4, "target": [3, 2], "original": [], "topic_id": ""}],
    ],
)
def test_moves_are_read_from_json(document: object) -> None:
    assert parse_moves(json.dumps(document), "file") == [Move("sea", 4, (3, 2))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "file is not JSON"),
        ("[" * 100_000, "file is not JSON"),
        ("{}", "file contains no moves"),
        ("[1]", "file, move 1 is 1"),
        ('[{"topic": "sea", "partition": 4, "tarjet": [1]}]', "has a field 'tarjet'"),
        ('[{"topic": "sea", "target": [1]}]', "names no topic and partition"),
        ('[{"topic": "sea", "partition": -1, "target": [1]}]', "names no topic and partition"),
        ('[{"topic": "sea", "partition": true, "target": [1]}]', "names no topic and partition"),
        ('[{"topic": "sea", "partition": 4, "target": []}]', "its target is not a list of"),
        ('[{"topic": "sea", "partition": 4, "target": ["a"]}]', "its target is not a list of"),
        ('[{"topic": "sea", "partition": 4, "target": [1], "topic_id": 3}]', "not text"),
        ("sea/4=3\nsea/5", "file, line 2: 'sea/5' is not"),
    ],
)
def test_input_without_moves_is_rejected_with_the_place_and_the_reason(
    text: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem.replace("[", r"\[")):
        parse_moves(text, "file")


def test_the_headline_of_a_plan_has_the_minimum_number_of_moves() -> None:
    plan = Plan((MOVE,), 1, 1, 0, 1, ())
    assert "1 replica is copied (the minimum for this balance: 1)" in plan_headline(plan)
    assert "the least" not in plan_headline(replace(plan, minimum_replicas_added=None))


def test_warnings_of_a_plan_precede_its_moves() -> None:
    lines = list(plan_lines(Plan((MOVE,), 1, 1, 0, 1, (), ("beware",)), on_terminal=False))
    assert lines[1] == "Warning: beware"
    assert lines[-1].split() == ["sea/4", "1,2", "3,2", "3", "1"]


def test_an_empty_plan_is_reported() -> None:
    (line,) = plan_lines(Plan((), 0, 0, 0, 0, ()), on_terminal=False)
    assert line.startswith("Nothing moves")


def test_progress_is_shown_in_bytes_where_known() -> None:
    reported = replace(
        PROGRESS,
        bytes_to_copy=4_000_000,
        bytes_copied=1_000_000,
        bytes_per_second=500_000,
        moves_unmeasured=1,
    )
    assert progress_text(reported).endswith(
        "2 of 8 replicas copied; 1.0 MB of 4.0 MB, 500.0 kB/s (without 1 partition of unknown size)"
    )


def test_the_end_time_is_estimated_only_where_possible() -> None:
    assert end_text(OPERATION, NOW_MS) == "in about 3 min 20 s, at 2023-11-14T22:16:40Z"
    unknown = replace(OPERATION, progress=replace(PROGRESS, estimated_end_ms=0))
    assert end_text(unknown, NOW_MS) == "not known yet"
    assert "ends" not in progress_line(unknown, NOW_MS)


def test_bars_show_progress_and_the_brokers_waited_for() -> None:
    view = BarsView()
    measured = replace(PROGRESS, bytes_to_copy=4_000_000, bytes_copied=1_000_000)
    active = [MoveProgress(MOVE, "active", (3,), 2_000_000, 500_000)] * 10
    view.show(replace(OPERATION, progress=measured), active, NOW_MS)
    console = Console(width=100, record=True, file=None, force_terminal=False)
    with console.capture() as rendered:
        console.print(view.renderable())
    shown = rendered.get()
    assert "Operation grow (rebalance) running" in shown
    assert "3 of 12" in shown
    assert "2 of 8" in shown
    assert "1.0 MB of 4.0 MB" in shown
    assert "Ends in about 3 min 20 s" in shown
    assert "sea/4 → 3,2  500.0 kB of 2.0 MB  waits for 3" in shown
    assert "… and 2 more" in shown


def test_bars_keep_their_last_state_on_the_screen() -> None:
    screen = io.StringIO()
    with bars(Console(file=screen, width=100, force_terminal=True)) as view:
        view.show(OPERATION, [], NOW_MS)
        view.show(replace(OPERATION, state="done"), [], NOW_MS)
    assert "Operation grow (rebalance) done" in screen.getvalue().splitlines()[-4]


def test_bars_of_an_operation_without_moves_are_complete() -> None:
    view = BarsView()
    done = replace(OPERATION, state="done", progress=Progress(0, 0, 0, 0, 0, 0, 0))
    view.show(done, [], NOW_MS)
    console = Console(width=100, force_terminal=False)
    with console.capture() as rendered:
        console.print(view.renderable())
    assert "100%" in rendered.get()
    assert "Ends" not in rendered.get()
