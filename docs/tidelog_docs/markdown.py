"""Pieces of Markdown that generators share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# An underscore within a word is an ordinary character.
_SPECIAL = re.compile(r"\*|\b__|__\b")


def cell(text: str) -> str:
    """Returns the text as one cell of a table: a line, with no bar and no tag of its own."""
    return prose(" ".join(text.split())).replace("|", "\\|")


def prose(text: str) -> str:
    """Returns the text without characters that Markdown would take for tags."""
    parts = text.split("`")
    parts[::2] = [_SPECIAL.sub(r"\\\g<0>", part).replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table. Cells are Markdown; `cell` makes them from plain text."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def block(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"
