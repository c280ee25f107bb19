"""One HTML page of all results of the suite, with its pictures inlined; they are files as well.

`python -m bench.plots.page out/bench.json` generates it again."""

from __future__ import annotations

import base64
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bench.plots.drawing import png
from bench.report import Measured
from bench.scale.by_size import BySize, arranged
from bench.suite import document
from bench.suite.outcome import Chart

STYLES = {True: "met", False: "missed", None: ""}
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
  color: #1b1f24; background: #fff; }
table { border-collapse: collapse; margin: 0.6rem 0 1.6rem; }
td, th { padding: 0.15rem 0.9rem 0.15rem 0; border-bottom: 1px solid #d8dee4; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.met { color: #1a7f37; } td.missed { color: #cf222e; font-weight: 600; }
img { max-width: 100%; display: block; margin: 0.8rem 0; }
nav a { margin-right: 1rem; }
"""


def write_page(whole: Mapping[str, Any], path: Path) -> Path:
    """Writes the page, and a PNG for each chart into the directory beside it; other files there are
    removed."""
    pictures = path.with_suffix("")
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir(parents=True)
    drawn: dict[str, list[tuple[Chart, bytes]]] = {}
    for part, charts in document.charts_of(whole).items():
        drawn[part] = [
            (chart, png(chart)) for chart in charts if any(c.points for c in chart.lines)
        ]
        for chart, data in drawn[part]:
            (pictures / f"{chart.name}.png").write_bytes(data)
    path.write_text(html(whole, drawn))
    return path


def html(whole: Mapping[str, Any], drawn: Mapping[str, Sequence[tuple[Chart, bytes]]]) -> str:
    machine = ", ".join(f"{name}: {value}" for name, value in whole["machine"].items())
    parts = list(whole["parts"])
    results = document.results_of(whole)
    body = [
        f"<h1>Tidelog bench ({escape(whole['form'])})</h1>",
        f"<p>{escape(machine)}</p>",
        f"<p>{escape(_verdict(whole))}</p>",
        "<nav>" + "".join(f'<a href="#{part}">{part}</a>' for part in parts) + "</nav>",
    ]
    for part in parts:
        body.append(f'<h2 id="{part}">{part}</h2>')
        body += map(_picture, drawn.get(part, ()))
        by_size, others = arranged(results.get(part, ()))
        body.append(_by_size(by_size) if by_size.rows else "")
        body.append(_table(others) if others else "")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Tidelog bench</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _verdict(whole: Mapping[str, Any]) -> str:
    bounded = [row for row in whole["results"] if row["met"] is not None]
    missed = whole["not_met"]
    return f"{len(bounded) - len(missed)} of {len(bounded)} bounds are met." + (
        f" Not met: {'; '.join(missed)}." if missed else ""
    )


def _picture(drawn: tuple[Chart, bytes]) -> str:
    chart, data = drawn
    encoded = base64.b64encode(data).decode()
    return f'<img alt="{escape(chart.title)}" src="data:image/png;base64,{encoded}">'


def _table(results: Iterable[Measured]) -> str:
    head = "<tr><th>what<th>value<th>unit<th>of C<th>wanted</tr>"
    return f"<table>{head}{''.join(map(_row, results))}</table>"


def _by_size(found: BySize) -> str:
    head = "".join(f"<th>{size:,}" for size in found.sizes)
    rows = "".join(
        f"<tr><td>{escape(row.text)}"
        + "".join(_cell(row.by_size.get(size)) for size in found.sizes)
        + f"<td>{escape(row.unit)}<td>{escape(row.wanted)}</tr>"
        for row in found.rows
    )
    return f"<table><tr><th>partitions{head}<th>unit<th>wanted</tr>{rows}</table>"


def _cell(result: Measured | None) -> str:
    if result is None:
        return "<td>"
    return f'<td class="number {STYLES[result.met]}">{result.value:,.2f}'


def _row(result: Measured) -> str:
    ratio = "" if result.ratio_to_ceiling is None else f"{result.ratio_to_ceiling:.2f}"
    style = STYLES[result.met]
    return (
        f'<tr><td>{escape(result.name)}<td class="number">{result.value:,.2f}'
        f'<td>{escape(result.unit)}<td class="number">{ratio}'
        f'<td class="{style}">{escape(result.wanted)}</tr>'
    )


if __name__ == "__main__":
    of = Path(sys.argv[1])
    write_page(document.read(of), of.with_suffix(".html"))
