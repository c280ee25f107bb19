"""`tidelog backup create`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.backup.common import (
    DirectoryArgument,
    ParallelismOption,
    ProgressNotes,
    RateOption,
    TopicsOption,
    backup_errors,
    failures_document,
    gaps_document,
    missing_lines,
    patterns,
    rate,
)
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.operating.command_options import shared_options
from tidelog.cli.output import write_error, write_json, write_line, write_note
from tidelog.cli.session import Session, seconds_option
from tidelog.phrases import plural
from tidelog.units import size_text

if TYPE_CHECKING:
    from tidelog.backup import Manifest

CREATE_JSON = (
    "directory, backup_id, cluster_id, complete, captured_at_ms, topics, partitions, records, "
    "size_bytes (all of the backup), copied_bytes (of this run), failures [topic, partition, "
    "error] and gaps [topic, partition, first_offset, next_offset, reason (damaged, removed)]."
)


@shared_options()
async def create(
    session: Session,
    directory: DirectoryArgument,
    topics: TopicsOption = None,
    incremental: Annotated[
        bool,
        typer.Option("--incremental", help="Add what is new to a backup that is there already."),
    ] = False,
    max_rate: RateOption = "none",
    parallelism: ParallelismOption = 4,
    leader_timeout: Annotated[
        float,
        seconds_option("--leader-timeout", "How long to wait for partitions without a leader."),
    ] = 30.0,
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete",
            help="Leave out partitions that still have no leader, and mark the backup incomplete.",
        ),
    ] = False,
) -> ExitStatus:
    """Copy topics into a directory, each partition up to its high watermark at the start.

    An interrupted command is repeated: it continues. The exit status is 1 if a partition could not
    be copied completely, or records are missing because of damage or retention; all others are
    copied. Without --allow-incomplete nothing is copied while a partition has no leader.
    """
    from tidelog.backup import CreateOptions, create_backup

    options = CreateOptions(
        patterns(topics),
        incremental,
        rate(max_rate),
        parallelism,
        leader_timeout_ms=round(leader_timeout * 1000),
        allow_incomplete=allow_incomplete,
    )
    notes = ProgressNotes("copied")
    with backup_errors():
        gaps_before = _known_gaps(directory)
        manifest = await create_backup(
            await session.reach(),
            directory,
            options,
            on_plan=notes.plan,
            on_progress=notes.add,
        )
    if session.as_json:
        write_json(_document(directory, manifest, notes))
    else:
        _show(directory, manifest, notes)
    if manifest.failures or len(manifest.gaps) > gaps_before:
        return ExitStatus.FAILED
    return ExitStatus.DONE


def _known_gaps(directory: Path) -> int:
    from tidelog.backup import BackupDirectory

    before = BackupDirectory(directory).find_manifest()
    return len(before.gaps) if before is not None else 0


def _document(directory: Path, manifest: Manifest, notes: ProgressNotes) -> dict[str, Any]:
    partitions = [partition for _, partition in manifest.partitions()]
    return {
        "directory": str(directory),
        "backup_id": manifest.backup_id,
        "cluster_id": manifest.cluster_id,
        "complete": not manifest.failures,
        "captured_at_ms": manifest.captured_at_ms,
        "topics": len(manifest.topics),
        "partitions": len(partitions),
        "records": sum(partition.records for partition in partitions),
        "size_bytes": sum(partition.size_bytes for partition in partitions),
        "copied_bytes": notes.size_bytes,
        "failures": failures_document(manifest),
        "gaps": gaps_document(manifest),
    }


def _show(directory: Path, manifest: Manifest, notes: ProgressNotes) -> None:
    partitions = [partition for _, partition in manifest.partitions()]
    size_bytes = sum(partition.size_bytes for partition in partitions)
    write_line(str(notes))
    write_line(
        f"{directory} has {plural(len(manifest.topics), 'topic')}, "
        f"{plural(len(partitions), 'partition')}, "
        f"{plural(sum(p.records for p in partitions), 'record')}, {size_text(size_bytes)}"
    )
    if manifest.settings is None:
        write_note("warning: the limit on moves is not in the backup: no controller answered")
    if missing := missing_lines(manifest):
        write_error("\n".join(missing))
