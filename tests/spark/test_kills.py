"""A streaming copy on a local Spark cluster that is killed in mid-task and after the commit.

`make spark-kills` kills it at all points."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.spark_kills import results
from bench.spark_kills.records import Found, Missing, compare
from bench.spark_kills.run import SHORT, run
from spark.running import Running
from spark.session import JAVA_OPTIONS, JAVA_OPTIONS_VARIABLE


@pytest.mark.rule("repeated-micro-batch-written-once")
@pytest.mark.timeout(1_200)
def test_a_copy_is_exact_after_kills_of_any_process_at_any_point(
    cluster: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, JAVA_OPTIONS)
    outcome = run(cluster.bootstrap, tmp_path, SHORT, print_line=print)
    content = results.content(outcome, SHORT.schedule)
    assert content["counts"] == dict.fromkeys(("source", "target", "table"), SHORT.records)
    assert content["lost"] == content["duplicated"] == {"target": 0, "table": 0}
    assert content["drivers"] == 1 + len(SHORT.points)
    assert content["passed"]


def test_lost_and_duplicate_records_are_counted() -> None:
    source = Found("", np.arange(5))
    assert compare(source, Found("", np.array([0, 1, 1, 4, 4, 4, 2]))) == Missing(1, 3)
