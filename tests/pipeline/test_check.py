"""The job `check` on a real Spark gives the same result as the check on one machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidelog.history import (
    Anomaly,
    HistoryError,
    HistoryWriter,
    Operation,
    check_history,
    read_history,
)
from tidelog.history.report_document import document
from tidelog_pipeline.__main__ import main
from tidelog_pipeline.check.plan import check
from unit.pipeline.planted_histories import planted_history


def written(path: Path, operations: list[Operation]) -> Path:
    with HistoryWriter(path) as history:
        history.write_all(operations)
    return path


@pytest.mark.rule("check-uses-rules-of-one-machine")
@pytest.mark.usefixtures("spark")
def test_every_kind_of_anomaly_has_the_same_verdict_on_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "history", planted_history(seed=1))
    report = check_history(read_history(path))
    assert set(report.findings.counts) == set(Anomaly)
    status = main(["check", "--history", str(path), "--range-bytes", "40000"])
    assert status == 1
    assert json.loads(capsys.readouterr().out) == json.loads(
        json.dumps(document(report, report.write_timing()))
    )


def test_a_history_in_several_files_is_one(spark: SparkSession, tmp_path: Path) -> None:
    whole = written(tmp_path / "history", planted_history(seed=2))
    lines = whole.read_bytes().splitlines(keepends=True)
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, at in enumerate(range(0, len(lines), 700)):
        (parts / f"part-{number}").write_bytes(b"".join(lines[at : at + 700]))
    report = check_history(read_history(whole))
    found = check(spark, str(parts), range_bytes=1 << 20)
    assert document(found.report, found.timing) == document(report, report.write_timing())


def test_a_history_that_contradicts_itself_says_where(spark: SparkSession, tmp_path: Path) -> None:
    operations = planted_history(seed=3, count=2)
    path = written(tmp_path / "history", [*operations, operations[0]])
    with path.open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(HistoryError) as whole:
        check_history(read_history(path))
    with pytest.raises(HistoryError) as parts:
        check(spark, str(path), range_bytes=20_000)
    assert str(parts.value) == str(whole.value)
    path.write_bytes(path.read_bytes()[:-4] + b'{"k":"sea')
    path.write_bytes(path.read_bytes().replace(operations_line(path, 3), b"sea\n"))
    with pytest.raises(HistoryError) as whole:
        check_history(read_history(path))
    with pytest.raises(HistoryError, match="line 3: no JSON") as parts:
        check(spark, str(path), range_bytes=20_000)
    assert str(parts.value) == str(whole.value)


def operations_line(path: Path, number: int) -> bytes:
    return path.read_bytes().splitlines(keepends=True)[number - 1]
