"""One HTML page of all results of the suite, with inlined pictures, which are also files.

`python -m bench.plots.page out/bench.json` generates it again.
"""

from __future__ import annotations

import base64
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.plots.drawing import png
from bench.report import Measured
from bench.scale.by_size import arranged
from bench.suite.document import charts_of, read, results_of
from bench.suite.outcome import Chart
from tidelog_pipeline.pages import Cell, render

_TEMPLATE = Path(__file__).with_name("results.html")
_STYLES = {True: "number good", False: "number bad", None: "number"}


def write_page(document: Mapping[str, Any], path: Path) -> Path:
    """Writes the page, and a PNG of each chart to the directory beside it. Removes other files
    there."""
    pictures = path.with_suffix("")
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir(parents=True)
    drawn: dict[str, list[tuple[Chart, bytes]]] = {}
    for part, charts in charts_of(document).items():
        drawn[part] = [
            (chart, png(chart)) for chart in charts if any(c.points for c in chart.lines)
        ]
        for chart, data in drawn[part]:
            (pictures / f"{chart.name}.png").write_bytes(data)
    path.write_text(html(document, drawn))
    return path


def html(document: Mapping[str, Any], drawn: Mapping[str, Sequence[tuple[Chart, bytes]]]) -> str:
    results = results_of(document)
    return render(
        _TEMPLATE,
        document=document,
        bounded=sum(row["met"] is not None for row in document["results"]),
        parts=[
            _part(part, results.get(part, ()), drawn.get(part, ())) for part in document["parts"]
        ],
    )


def _part(
    name: str, results: Sequence[Measured], drawn: Sequence[tuple[Chart, bytes]]
) -> dict[str, Any]:
    by_size, others = arranged(results)
    return {
        "name": name,
        "pictures": [(chart.title, base64.b64encode(data).decode()) for chart, data in drawn],
        "sizes": by_size.sizes,
        "rows_by_size": [
            [
                row.text,
                *(_cell(row.by_size.get(size)) for size in by_size.sizes),
                row.unit,
                row.target,
            ]
            for row in by_size.rows
        ],
        "rows": [
            [one.name, _cell(one), one.unit, _ratio(one.ratio_to_ceiling), one.target]
            for one in others
        ],
    }


def _cell(result: Measured | None) -> Cell:
    return Cell(f"{result.value:,.2f}", _STYLES[result.met]) if result else Cell("")


def _ratio(ratio: float | None) -> Cell:
    return Cell("" if ratio is None else f"{ratio:.2f}", "number")


if __name__ == "__main__":
    of = Path(sys.argv[1])
    write_page(read(of), of.with_suffix(".html"))
