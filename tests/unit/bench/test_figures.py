"""Bounds of growing and shrinking a cluster: each missed bound is named."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.grow.__main__ import content, parse
from bench.grow.figures import MoveFigures, RunFigures, ratio, verdicts
from bench.grow.ledger import ReadBack
from bench.grow.run import FULL, QUICK
from bench.report import missed_names, write_form

MOVE = MoveFigures(
    operation="grow",
    duration_s=90.0,
    samples=18_000,
    p50_ms=5.0,
    p99_ms=20.0,
    longest_ms=80.0,
    p99_ratio=2.0,
    replicas_planned=360,
    replicas_moved=360,
    replicas_minimum=360,
    bytes_moved=3.65e9,
    bytes_received=3.64e9,
    bytes_minimum=3.6e9,
    bytes_reported=3_600_000_000,
    replicas_by_broker={1: 180, 2: 180},
    leaders_by_broker={1: 60, 2: 60},
    replica_spread=0,
    leader_spread=1,
    leader_spread_before_election=40,
    throttle_bytes_per_second=20_000_000,
    bytes_per_second=4e7,
    peak_bytes_per_second=2.1e7,
    rate_ratio=0.99,
    cores={"brokers": 1.2},
)
RUN = RunFigures(
    quiet_samples=12_000,
    quiet_p50_ms=4.0,
    quiet_p99_ms=10.0,
    quiet_cores={"brokers": 0.5},
    late_p99_ms=1.0,
    sent=50_000,
    failed=0,
    bytes_filled=3_000_000_000,
    fill_s=60.0,
    grow=MOVE,
    shrink=replace(MOVE, operation="shrink"),
    read_back=ReadBack(1000, 1000, 0, 0, 0),
)


def test_within_all_bounds_nothing_is_named() -> None:
    assert missed_names(verdicts([RUN])) == []


@pytest.mark.parametrize(
    ("run", "named"),
    [
        (replace(RUN, failed=1), "failed produces, all runs"),
        (
            replace(RUN, read_back=ReadBack(1000, 999, 1, 0, 0)),
            "acknowledged records not read back, all runs",
        ),
        (replace(RUN, read_back=ReadBack(9, 10, 0, 1, 0)), "records read twice, all runs"),
        (replace(RUN, grow=replace(MOVE, p99_ratio=3.1)), "grow: p99 against the quiet p99"),
        (
            replace(RUN, grow=replace(MOVE, replicas_moved=397)),
            "grow: replicas against the fewest",
        ),
        (replace(RUN, shrink=replace(MOVE, bytes_moved=4e9)), "shrink: bytes against the fewest"),
        (
            replace(RUN, shrink=replace(MOVE, replica_spread=2)),
            "shrink: replicas, most against fewest of a broker",
        ),
        (
            replace(RUN, grow=replace(MOVE, leader_spread=2)),
            "grow: leaders, most against fewest of a broker",
        ),
        (
            replace(RUN, grow=replace(MOVE, rate_ratio=1.2)),
            "grow: rate of a broker against throttle and load",
        ),
    ],
)
def test_only_the_missed_bound_is_named(run: RunFigures, named: str) -> None:
    assert missed_names(verdicts([run])) == [named]


def test_latency_is_judged_by_the_median_and_balance_by_the_worst() -> None:
    slow = replace(RUN, grow=replace(MOVE, p99_ratio=9.0))
    uneven = replace(RUN, grow=replace(MOVE, leader_spread=5))

    assert missed_names(verdicts([RUN, slow, RUN])) == []
    assert missed_names(verdicts([RUN, uneven, RUN])) == [
        "grow: leaders, most against fewest of a broker"
    ]


def test_no_moves_are_optimal_where_none_are_needed() -> None:
    assert ratio(0, 0) == 1.0
    assert ratio(1, 0) > 1e9


def test_a_run_has_its_operations_with_their_ratios() -> None:
    written = json.loads(json.dumps(content("quick", {"runs": 1}, [RUN])))
    (run,) = written["runs"]

    assert run["grow"]["replicas_ratio"] == 1.0
    assert run["shrink"]["operation"] == "shrink"


def test_options_change_single_settings_of_a_form() -> None:
    assert parse([]) == ("full", FULL)
    assert parse(["--quick", "--rate", "0.5"]) == ("custom", replace(QUICK, rate=0.5))
    assert parse(["--quick"]) == ("quick", QUICK)
    assert parse(["--runs", str(FULL.runs)]) == ("full", FULL)


def test_a_shortened_run_does_not_overwrite_the_file_of_a_full_one(tmp_path: Path) -> None:
    form, _ = parse(["--runs", "1"])
    written = write_form(tmp_path, "bench-grow", content(form, {"runs": 1}, [RUN]))
    full = write_form(tmp_path, "bench-grow", content("full", {"runs": 5}, [RUN]))
    assert written != full


def test_a_zero_option_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--runs", "0"])
    assert "--runs is 0; it must be above 0" in capsys.readouterr().err
