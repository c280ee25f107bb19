"""The commands of `tidelog`, from typer: each with its own help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import typer

from tidelog.cli.__main__ import app
from tidelog_docs.markdown import block, cell, code, table

_COLUMNS = 100


class Command(NamedTuple):
    path: str
    summary: str
    help: str
    is_group: bool


def commands() -> Iterator[Command]:
    """Yields all commands and groups, each group before its commands."""
    yield from _below(typer.main.get_command(app), "tidelog", None)


# Typer has its own copy of click, whose classes are not its interface.
def _below(command: Any, path: str, parent: Any) -> Iterator[Command]:
    settings = {**command.context_settings, "max_content_width": _COLUMNS}
    context = command.context_class(
        command,
        info_name=path.rpartition(" ")[2],
        parent=parent,
        terminal_width=_COLUMNS,
        **settings,
    )
    is_group = hasattr(command, "list_commands")
    yield Command(path, command.get_short_help_str(200), command.get_help(context), is_group)
    for name in command.list_commands(context) if is_group else ():
        child = command.get_command(context, name)
        if not child.hidden:
            yield from _below(child, f"{path} {name}", context)


def cli() -> str:
    found = list(commands())
    rows = [
        (f"[{code(command.path)}](#{anchor(command.path)})", cell(command.summary))
        for command in found
        if not command.is_group
    ]
    parts = [table(("command", "purpose"), rows)]
    for command in found:
        parts += [f"## {command.path}", block("text", command.help)]
    return "\n\n".join(parts)


def anchor(path: str) -> str:
    return path.replace(" ", "-")
