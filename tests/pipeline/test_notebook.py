"""Runs the cells of the notebook one after another, as its reader does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark.running import Running

NOTEBOOK = Path(__file__).parents[2] / "examples/notebooks/archive.ipynb"


def cells() -> list[str]:
    code_cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in code_cells if cell["cell_type"] == "code"]


def test_every_cell_of_the_notebook_runs_and_reads_its_values(
    spark: SparkSession,  # noqa: ARG001 - the session that it finds
    cluster: Running,
    tmp_path: Path,
) -> None:
    known: dict[str, Any] = {}
    for cell in cells():
        text = cell.replace("127.0.0.1:7501", cluster.bootstrap)
        exec(text.replace("/tmp/tides-archive", str(tmp_path / "archive")), known)
    assert known["archive"].count() == 1000
    assert known["archive"].where("value.level is null").count() == 0
