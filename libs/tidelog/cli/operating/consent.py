"""Nothing dangerous happens unasked: it is shown first, and somebody says yes."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import typer

from tidelog.cli.exit_status import UsageError
from tidelog.cli.operating.manner import Manner
from tidelog.cli.output import write_note
from tidelog.cli.session import Session


def check_can_be_asked(session: Session, manner: Manner, danger: str) -> None:
    """`danger`: what would happen, as a sentence without its end. Raises `UsageError` where
    nobody has said yes and nobody can be asked."""
    if not (manner.yes or manner.dry_run or session.can_ask()):
        raise UsageError(
            f"{danger}; say --yes to do it where nobody can be asked, or --dry-run to see what "
            "would be done"
        )


def agrees(shown: Iterable[str]) -> bool:
    """After what was shown, on stderr."""
    _show(shown)
    return typer.confirm("Go on?", default=False, err=True)


def types_its_name(shown: Iterable[str], name: str) -> bool:
    """For what cannot be taken back."""
    _show(shown)
    typed = typer.prompt("Type its name to go on", default="", show_default=False, err=True)
    return str(typed).strip() == name


def notes_on_terminal() -> bool:
    return sys.stderr.isatty()


def _show(lines: Iterable[str]) -> None:
    for line in lines:
        write_note(line)
