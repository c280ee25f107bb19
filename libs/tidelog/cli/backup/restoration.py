"""`tidelog backup restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.backup.common import (
    DirectoryArgument,
    ParallelismOption,
    ProgressNotes,
    RateOption,
    RenameOption,
    TopicsOption,
    backup_errors,
    offsets_text,
    patterns,
    rate,
    renamed,
)
from tidelog.cli.operating.command_options import shared_options
from tidelog.cli.output import write_json, write_line, write_note, write_table
from tidelog.cli.session import Session

if TYPE_CHECKING:
    from tidelog.backup import RestoreResult

RESTORE_JSON = (
    "topics [topic, source (its name in the backup), partitions, records, written (records of "
    "this run), keeps_offsets], size_bytes (of this run) and warnings."
)
MAX_FACTOR = 32


@shared_options()
async def restore(
    session: Session,
    directory: DirectoryArgument,
    topics: TopicsOption = None,
    rename: RenameOption = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            max=MAX_FACTOR,
            show_default=False,
            help="Of all topics. Default: as in the backup, if there are enough brokers.",
        ),
    ] = None,
    keep_all: Annotated[
        bool,
        typer.Option(
            "--keep-all",
            help="Leave retention off. Default: as in the backup; ages count from the restore.",
        ),
    ] = False,
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete", help="Restore a backup that lacks a part of partitions."
        ),
    ] = False,
    throttle: Annotated[
        bool,
        typer.Option(
            "--throttle",
            help="Also limit moves in the cluster as in the backed-up one (tidelog throttle).",
        ),
    ] = False,
    max_rate: RateOption = "none",
    parallelism: ParallelismOption = 8,
) -> None:
    """Create the topics of a backup in a cluster that lacks them, and write their records.

    Partitions, keys, values, headers and timestamps stay the same. Offsets begin at 0; they stay
    the same if the backup begins at 0 and has no gaps, and offsets.json of the backup maps them. An
    interrupted command is repeated: it continues, and writes no record twice.
    """
    from tidelog.backup import RestoreOptions, restore_backup

    options = RestoreOptions(
        patterns(topics),
        renamed(rename),
        replication_factor,
        allow_incomplete,
        keep_all,
        throttle,
        rate(max_rate),
        parallelism,
    )
    notes = ProgressNotes("wrote")
    with backup_errors():
        result = await restore_backup(
            await session.reach(), directory, options, on_progress=notes.add
        )
    if session.as_json:
        write_json(_document(result))
    else:
        _show(result, notes, directory)


def _document(result: RestoreResult) -> dict[str, Any]:
    return {
        "topics": [topic._asdict() for topic in result.topics],
        "size_bytes": result.size_bytes,
        "warnings": list(result.warnings),
    }


def _show(result: RestoreResult, notes: ProgressNotes, directory: Path) -> None:
    write_table(
        ("topic", "partitions", "records", "written now", "offsets"),
        [
            (
                topic.topic,
                topic.partitions,
                f"{topic.records:,}",
                f"{topic.written:,}",
                offsets_text([topic.keeps_offsets]),
            )
            for topic in result.topics
        ],
    )
    write_line(str(notes))
    if not all(topic.keeps_offsets for topic in result.topics):
        write_note(
            "Offsets are new where the backup does not begin at 0, has gaps or producer fences: "
            f"{directory / 'offsets.json'} maps stored positions to them."
        )
    for warning in result.warnings:
        write_note(f"warning: {warning}")
