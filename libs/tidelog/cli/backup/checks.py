"""`tidelog backup verify` and `tidelog backup show`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.backup.common import (
    DirectoryArgument,
    ProgressNotes,
    RenameOption,
    TopicsOption,
    backup_errors,
    failures_document,
    gaps_document,
    limit_text,
    missing_lines,
    offsets_text,
    patterns,
    renamed,
)
from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.operating.command_options import shared_options
from tidelog.cli.output import (
    timestamp_text,
    write_error,
    write_json,
    write_line,
    write_note,
    write_table,
)
from tidelog.cli.session import Session
from tidelog.phrases import plural
from tidelog.units import setting_argument, size_text

if TYPE_CHECKING:
    from tidelog.backup import Manifest

VERIFY_JSON = (
    "Without --against: partitions, segments, batches, records, size_bytes, fault_count, faults "
    "(the first 100), failures and gaps as in backup create.",
    "With it: partitions, records, difference_count, differences (the first 100).",
)
SHOW_JSON = (
    "The manifest: backup_id, cluster_id, tidelog_version, patterns, created_at_ms, "
    "captured_at_ms, ended_at_ms, topics [topic, topic_id, partition_count, replication_factor, "
    "config, partitions [partition, start_offset, next_offset, high_watermark, leader_epoch, "
    "last_epoch, segments, gaps, fences, error]], settings [moves_bytes_per_second (null: no "
    "limit)] (null: not known)."
)


@shared_options()
async def verify(
    session: Session,
    directory: DirectoryArgument,
    against: Annotated[
        bool,
        typer.Option(
            "--against",
            help="Compare each record with the cluster, which may be the restored one.",
        ),
    ] = False,
    topics: TopicsOption = None,
    rename: RenameOption = None,
) -> ExitStatus:
    """Check all checksums and offset ranges of a backup, or compare its records with a cluster.

    The exit status is 1 if anything is damaged or differs. Without --against no cluster is needed.
    With it, records that the cluster has beyond the backup are no differences.
    """
    if against:
        return await _compare(session, directory, patterns(topics), renamed(rename))
    if topics or rename:
        raise UsageError("--topics and --rename choose topics of a cluster; add --against")
    return _verify(session, directory)


def _verify(session: Session, directory: Path) -> ExitStatus:
    from tidelog.backup import verify_backup

    with backup_errors():
        found = verify_backup(directory)
    if session.as_json:
        document = asdict(found)
        del document["manifest"]
        document["failures"] = failures_document(found.manifest)
        document["gaps"] = gaps_document(found.manifest)
        write_json(document)
    else:
        write_line(
            f"{plural(found.partitions, 'partition')}, {plural(found.segments, 'segment')}, "
            f"{plural(found.batches, 'batch', 'batches')}, {plural(found.records, 'record')}, "
            f"{size_text(found.size_bytes)}: {'DAMAGED' if found.fault_count else 'sound'}"
        )
        for line in missing_lines(found.manifest):
            write_note(f"warning: {line}")
    if found.fault_count:
        write_error("\n".join(_named(found.faults, found.fault_count)))
        return ExitStatus.FAILED
    return ExitStatus.DONE


async def _compare(
    session: Session, directory: Path, topics: tuple[str, ...], rename: dict[str, str]
) -> ExitStatus:
    from tidelog.backup import compare_backup

    notes = ProgressNotes("compared")
    with backup_errors():
        found = await compare_backup(
            await session.reach(),
            directory,
            topics=topics,
            renamed=rename,
            on_progress=notes.add,
        )
    if session.as_json:
        write_json(asdict(found))
    else:
        write_line(
            f"{notes}: {plural(found.difference_count, 'difference')} in "
            f"{plural(found.partitions, 'partition')}"
        )
    if found.difference_count:
        write_error("\n".join(_named(found.differences, found.difference_count)))
        return ExitStatus.FAILED
    return ExitStatus.DONE


def _named(lines: list[str], count: int) -> list[str]:
    more = count - len(lines)
    return [*lines, f"and {more:,} more"] if more > 0 else lines


@shared_options()
async def show(
    session: Session,
    directory: DirectoryArgument,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="One line for each partition.")
    ] = False,
) -> None:
    """Show what a backup has. Needs no cluster, and reads the manifest alone.

    "offsets": whether records keep their offsets in a restore, or get new ones, which offsets.json
    of the backup maps.
    """
    from tidelog.backup import BackupDirectory

    with backup_errors():
        manifest = BackupDirectory(directory).read()
    if session.as_json:
        write_json(asdict(manifest))
        return
    write_line(
        f"backup {manifest.backup_id} of cluster {manifest.cluster_id}, up to "
        f"{timestamp_text(manifest.captured_at_ms)}; limit on moves: {limit_text(manifest)}"
    )
    if partitions:
        _show_partitions(manifest)
    else:
        _show_topics(manifest)
    if missing := missing_lines(manifest):
        write_error("\n".join(missing))


def _show_topics(manifest: Manifest) -> None:
    from tidelog.backup.offset_mapping import keeps_offsets

    write_table(
        ("topic", "partitions", "factor", "records", "size", "offsets", "config"),
        [
            (
                topic.topic,
                topic.partition_count,
                topic.replication_factor,
                f"{sum(partition.records for partition in topic.partitions):,}",
                size_text(sum(partition.size_bytes for partition in topic.partitions)),
                offsets_text(map(keeps_offsets, topic.partitions)),
                " ".join(
                    setting_argument(key, value) for key, value in sorted(topic.config.items())
                )
                or "-",
            )
            for topic in manifest.topics
        ],
    )


def _show_partitions(manifest: Manifest) -> None:
    write_table(
        ("partition", "first offset", "next offset", "records", "segments", "size"),
        [
            (
                str(name),
                found.start_offset,
                found.next_offset,
                f"{found.records:,}",
                len(found.segments),
                size_text(found.size_bytes),
            )
            for name, found in manifest.partitions()
        ],
    )
