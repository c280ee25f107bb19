"""Asks for confirmation before destructive changes, after showing them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable

from tidelog.cli.exit_status import ExitStatus, NotConfirmedError
from tidelog.cli.json_errors import json_error
from tidelog.cli.operating.options import MutationOptions
from tidelog.cli.output import write_json, write_note
from tidelog.cli.session import Session


def check_can_confirm(session: Session, options: MutationOptions, danger: str) -> None:
    """Raises `NotConfirmedError` if the change is neither confirmed nor can be.

    `danger`: what would happen, as a sentence without its end. Called after a first request, so
    that it does not warn about something that does not exist.
    """
    if not (options.yes or options.dry_run or session.can_prompt()):
        raise NotConfirmedError(
            f"{danger}; give --yes to do it without confirmation, or --dry-run to see what would "
            "be done"
        )


def confirms(shown: Iterable[str]) -> bool:
    """Asks for confirmation on stderr, after showing the change."""
    return _answer(shown, "Continue? [y/N]").lower() in ("y", "yes")


def confirms_by_name(shown: Iterable[str], name: str) -> bool:
    """Asks for the name, for changes that cannot be undone."""
    return _answer(shown, "Type its name to continue:") == name


def declined(session: Session, nothing: str) -> ExitStatus:
    """Reports that the user declined. `nothing`: the sentence that nothing was done."""
    write_note(nothing)
    if session.as_json:
        write_json(json_error(NotConfirmedError(nothing)))
    return ExitStatus.FAILED


def notes_on_terminal() -> bool:
    return sys.stderr.isatty()


def _answer(shown: Iterable[str], question: str) -> str:
    """Writes nothing to stdout, which may be a file. An end of input is no consent."""
    for line in shown:
        write_note(line)
    # The handler of the running event loop would not interrupt the read. Replaced before the
    # question appears, since the answer may be an immediate Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(f"{question} ")
        sys.stderr.flush()
        return sys.stdin.readline().strip()
    finally:
        signal.signal(signal.SIGINT, before)
