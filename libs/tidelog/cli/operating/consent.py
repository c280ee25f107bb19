"""Asks for confirmation before destructive changes, after showing them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable

from tidelog.cli.exit_status import ConfirmationRequiredError, ExitStatus
from tidelog.cli.json_errors import json_error
from tidelog.cli.operating.command_options import MutationOptions
from tidelog.cli.output import write_json, write_note
from tidelog.cli.session import Session


def check_can_confirm(session: Session, options: MutationOptions, danger: str) -> None:
    """Raises `ConfirmationRequiredError` if the change is neither confirmed nor can be.

    `danger`: what would happen, as a sentence without its end. Called after a first request, so
    that it does not warn about something that does not exist.
    """
    if not (options.yes or options.dry_run or session.can_prompt()):
        raise ConfirmationRequiredError(
            f"{danger}; give --yes to do it without confirmation, or --dry-run to see what would "
            "be done"
        )
    check_protected_context(session, options, danger)


def check_protected_context(session: Session, options: MutationOptions, danger: str) -> None:
    """Raises `ConfirmationRequiredError` unless the user names the protected context to which the
    change would apply: by --context, or by typing its name. --yes does not name it, so that a
    command line that was meant for another cluster does no harm.
    """
    name = "" if options.dry_run else session.protected_context()
    if not name:
        return
    shown = f"Context {name} is protected: {danger}."
    if session.can_prompt() and confirms_by_name([shown], name):
        return
    raise ConfirmationRequiredError(
        f"context {name} is protected, and the command does not name it: {danger}; give "
        f"--context {name} to do it there"
    )


def confirms(shown: Iterable[str]) -> bool:
    """Asks for confirmation on stderr, after showing the change."""
    return _answer(shown, "Continue? [y/N]").lower() in ("y", "yes")


def confirms_by_name(shown: Iterable[str], name: str) -> bool:
    """Asks for the name, for changes that cannot be undone."""
    return _answer(shown, "Type its name to continue:") == name


def confirms_by_digest(shown: Iterable[str], digest: str) -> bool:
    """Asks for the digest of a plan with several changes, some of which cannot be undone."""
    return _answer(shown, f"Type the digest {digest} to continue:") == digest


def declined(session: Session, nothing: str) -> ExitStatus:
    """Reports that the user declined. `nothing`: the sentence that nothing was done."""
    write_note(nothing)
    if session.as_json:
        write_json(json_error(ConfirmationRequiredError(nothing)))
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
