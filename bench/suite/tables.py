"""Tables of results on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench import report
from bench.report import Measured
from bench.scale.by_size import BySize, arranged

STYLES = {True: "green", False: "red", None: ""}


def show(results: Sequence[Measured], console: Console, title: str) -> None:
    by_size, others = arranged(results)
    if by_size.rows:
        console.print(_table(by_size, title))
    if others:
        report.show(others, console, title=title)


def _table(by_size: BySize, title: str) -> Table:
    table = Table(title=f"{title}: by partitions")
    table.add_column("result")
    for column in (*(f"{size:,}" for size in by_size.sizes), "unit", "target"):
        table.add_column(column, justify="right")
    for row in by_size.rows:
        cells = [_cell(row.by_size.get(size)) for size in by_size.sizes]
        table.add_row(row.text, *cells, row.unit, row.target)
    return table


def _cell(result: Measured | None) -> str:
    if result is None:
        return ""
    style = STYLES[result.met]
    text = f"{result.value:,.2f}"
    return f"[{style}]{text}[/]" if style else text
