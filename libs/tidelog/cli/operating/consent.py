"""Nothing dangerous happens unasked: it is shown first, and somebody says yes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable

from tidelog.cli.exit_status import ExitStatus, NotConfirmedError
from tidelog.cli.operating.manner import Manner
from tidelog.cli.output import write_json, write_note
from tidelog.cli.refusals import refusal_document
from tidelog.cli.session import Session


def check_can_be_asked(session: Session, manner: Manner, danger: str) -> None:
    """`danger`: what would happen, as a sentence without its end. Raises `NotConfirmedError`
    where nobody has said yes and nobody can be asked. Called after a first look, so that it speaks
    of nothing that does not exist."""
    if not (manner.yes or manner.dry_run or session.can_ask()):
        raise NotConfirmedError(
            f"{danger}; say --yes to do it where nobody can be asked, or --dry-run to see what "
            "would be done"
        )


def agrees(shown: Iterable[str]) -> bool:
    """After what was shown, on stderr."""
    return _answered(shown, "Go on? [y/N]").lower() in ("y", "yes")


def types_its_name(shown: Iterable[str], name: str) -> bool:
    """For what cannot be taken back."""
    return _answered(shown, "Type its name to go on:") == name


def declined(session: Session, nothing: str) -> ExitStatus:
    """`nothing`: that it was done, as a sentence."""
    write_note(nothing)
    if session.as_json:
        write_json(refusal_document(NotConfirmedError(nothing)))
    return ExitStatus.FAILED


def notes_on_terminal() -> bool:
    return sys.stderr.isatty()


def _answered(shown: Iterable[str], question: str) -> str:
    """Nothing of it goes to stdout, which may be a file. An end of input is no consent."""
    for line in shown:
        write_note(line)
    # An event loop runs, whose handler would let the reading go on. Before the question is seen,
    # for its answer may be Ctrl-C at once.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(f"{question} ")
        sys.stderr.flush()
        return sys.stdin.readline().strip()
    finally:
        signal.signal(signal.SIGINT, before)
