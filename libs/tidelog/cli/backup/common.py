"""Options, errors and progress that the backup commands share."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.exit_status import UsageError
from tidelog.cli.operating.targets import parse_rate
from tidelog.cli.output import write_note
from tidelog.units import size_text

if TYPE_CHECKING:
    from tidelog.backup import Manifest
    from tidelog.backup.workers import TransferProgress

# The same as in `tidelog.backup.workers`, which a command imports when it runs.
MAX_PARALLELISM = 64
PROGRESS_SECONDS = 5.0
# Failures and gaps that a text names; JSON has all of them.
MAX_SHOWN = 20

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The directory of the backup.")
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topics",
        metavar="PATTERN",
        show_default=False,
        help="A topic, or several as 'sea*'. May be repeated. Default: all.",
    ),
]
RateOption = Annotated[
    str,
    typer.Option(
        "--max-rate",
        metavar="RATE",
        help="Bytes per second, as 65536, 500kB, 50MB or 64MiB; none: no limit.",
    ),
]
ParallelismOption = Annotated[
    int,
    typer.Option(
        "--parallelism",
        min=1,
        max=MAX_PARALLELISM,
        help="Partitions that are copied at the same time.",
    ),
]
RenameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="OLD=NEW",
        show_default=False,
        help="The topic OLD of the backup is NEW in the cluster. May be repeated.",
    ),
]


def patterns(option: list[str] | None) -> tuple[str, ...]:
    return tuple(option) if option else ("*",)


def rate(option: str) -> int | None:
    """Raises `UsageError`."""
    found = parse_rate(option)
    if found == 0:
        raise UsageError("--max-rate is 0, so that nothing would be copied; give more, or none")
    return found


def renamed(option: list[str] | None) -> dict[str, str]:
    """Raises `UsageError`.

    >>> renamed(["sea=bay"])
    {'sea': 'bay'}
    """
    found: dict[str, str] = {}
    for text in option or ():
        old, separator, new = text.partition("=")
        if not (old and separator and new) or old in found:
            raise UsageError(f"--rename {text!r} is not OLD=NEW with each OLD once")
        found[old] = new
    return found


@contextmanager
def backup_errors() -> Iterator[None]:
    """Turns the error of an unusable backup into one that a command reports. Damage of its files
    remains an `OSError`."""
    from tidelog.backup import BackupError

    try:
        yield
    except BackupError as error:
        if isinstance(error, OSError):
            raise
        raise UsageError(str(error)) from error


class ProgressNotes:
    """Writes notes about the progress to stderr, if it is a terminal."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._began = self._noted = time.monotonic()
        self._is_shown = sys.stderr.isatty()
        self.total_records = 0
        self.size_bytes = self.records = 0

    def plan(self, total_records: int) -> None:
        self.total_records = total_records

    def add(self, progress: TransferProgress) -> None:
        self.size_bytes += progress.size_bytes
        self.records += progress.records
        now = time.monotonic()
        if self._is_shown and now - self._noted >= PROGRESS_SECONDS:
            self._noted = now
            write_note(str(self))

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self._began, 1e-3)

    def __str__(self) -> str:
        of = f" of {self.total_records:,}" if self.total_records else ""
        return (
            f"{self._verb} {self.records:,}{of} records, {size_text(self.size_bytes)}, "
            f"{self.size_bytes / 1e6 / self.seconds:.1f} MB/s"
        )


def failures_document(manifest: Manifest) -> list[dict[str, Any]]:
    return [{**name._asdict(), "error": error} for name, error in manifest.failures]


def gaps_document(manifest: Manifest) -> list[dict[str, Any]]:
    return [
        {
            **name._asdict(),
            "first_offset": gap.first_offset,
            "next_offset": gap.next_offset,
            "reason": str(gap.reason),
        }
        for name, gap in manifest.gaps
    ]


def offsets_text(keeps: Iterable[bool]) -> str:
    """Returns what happens to the offsets of a topic; `keeps`: whether each partition keeps its
    own."""
    return "kept" if all(keeps) else "new (offsets.json)"


def limit_text(manifest: Manifest) -> str:
    """Returns the limit on moves of the backed-up cluster."""
    if manifest.settings is None:
        return "not known"
    limit = manifest.settings.moves_bytes_per_second
    return "none" if limit is None else f"{size_text(limit)} a second"


def missing_lines(manifest: Manifest) -> list[str]:
    """Returns what a backup lacks, one line each."""
    lines = [f"{name} is not complete: {error}" for name, error in manifest.failures]
    lines += [
        f"{name} lacks offsets {gap.first_offset} to {gap.next_offset - 1}: {_REASONS[gap.reason]}"
        for name, gap in manifest.gaps
    ]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"and {len(lines) - MAX_SHOWN:,} more (--json lists all)"]
    return lines


_REASONS = {
    "damaged": "no replica could read them",
    "removed": "retention removed them before they were copied",
}
