"""HTML pages from Jinja2 templates. Every value is escaped, except for markup of `svg`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_SHARED = Path(__file__).parent


class Cell(NamedTuple):
    """A cell of a table. `style`: names of CSS classes."""

    text: str
    style: str = ""


def render(template: Path, **values: object) -> str:
    """Returns the page. The template may use `report.html` and `table.html` of this package."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, _SHARED]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template.name).render(values)
