"""The command of a job: `python -m tidelog_pipeline JOB [ACTION] --setting VALUE ...`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TypeVar

from tidelog_runtime.config import EXIT_INVALID_CONFIG, ProgramConfig, load

PROGRAM = "tidelog_pipeline"

ConfigT = TypeVar("ConfigT", bound=ProgramConfig)


class JobError(Exception):
    """An input of a job is missing or not as required; the message says what is required."""


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), repr(error))


def parse_choice(command: str, kind: str, known: Mapping[str, str], argv: Sequence[str]) -> str:
    """Returns the first word, which is a key of `known`.

    Exits with status 2 if it is not one, and with 0 after `--help`.
    """
    if argv and argv[0] in known:
        return argv[0]
    lines = [f"usage: python -m {command} {kind.upper()} [--help] ...", ""]
    lines += [f"  {name:14} {what}" for name, what in known.items()]
    wants_help = bool(argv) and argv[0] in ("-h", "--help")
    if argv and not wants_help:
        lines = [f"{command}: there is no {kind} {argv[0]!r}", *lines]
    (sys.stdout if wants_help else sys.stderr).write("\n".join(lines) + "\n")
    raise SystemExit(0 if wants_help else EXIT_INVALID_CONFIG)


def load_action(job: str, actions: Mapping[str, type[ConfigT]], argv: Sequence[str]) -> ConfigT:
    """Returns the configuration of the action at the start of `argv`. Exits as `load` does."""
    command = f"{PROGRAM} {job}"
    known = {name: " ".join((one.__doc__ or "").split()) for name, one in actions.items()}
    action = parse_choice(command, "action", known, argv)
    return load(actions[action], argv[1:], f"{command} {action}")
