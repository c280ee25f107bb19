"""`tidelog dump-log`: shows the content of a partition's segment files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.output import (
    COLUMN_GAP,
    bytes_fields,
    json_line,
    progress_bar,
    shown_bytes,
    terminal_width,
    timestamp_text,
    wrapped,
    write_error,
    write_json,
    write_line,
    write_note,
)
from tidelog.cli.session import JsonOption, ending_with_a_status, session_of
from tidelog.model import NO_PRODUCER_ID, Codec
from tidelog.phrases import plural
from tidelog.units import size_text

if TYPE_CHECKING:
    from tidelog.cli.log_check import CheckedFrame, LogTally

_COLUMNS = (
    ("position", 12),
    ("bytes", 9),
    ("base offset", 12),
    ("last offset", 12),
    ("records", 8),
    ("epoch", 6),
    ("codec", 6),
    ("first timestamp", 24),
    ("producer", 12),
)


def dump_log(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", exists=True, help="A segment file, or the directory of a partition."
        ),
    ],
    records: Annotated[bool, typer.Option("--records", help="Show the records too.")] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Only check; also that batches can be decoded, and that offsets have no gaps, "
            "from segment to segment too.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the batches of a log on disk, or check them. Changes nothing.

    Checksums are always checked; the exit status is 1 if anything is damaged. The last bytes of a
    log that is being written may look damaged for a moment.

    Example: tidelog dump-log .tidelog/brokers/1/replicas/sea-0.* --verify
    """
    as_json = session_of(context, None, as_json).as_json
    if records and verify:
        raise typer.BadParameter(
            "it shows only damage; give one of --records and --verify",
            param_hint="--verify",
        )
    with ending_with_a_status():
        segments = _segments(path)
        if verify:
            tally = _verify(segments, as_json=as_json)
        else:
            tally = _dump(segments, with_records=records, as_json=as_json)
        _write_faults(tally)
    if tally.fault_count:
        raise typer.Exit(ExitStatus.FAILED)


def _segments(path: Path) -> list[Path]:
    from tidelog.log_dump import segment_paths

    try:
        return segment_paths(path)
    except FileNotFoundError as error:
        raise UsageError(str(error)) from error


def _dump(segments: list[Path], *, with_records: bool, as_json: bool) -> LogTally:
    from tidelog.cli.log_check import LogTally, walk_segment

    tally = LogTally()
    for segment in segments:
        if not as_json:
            write_line(f"{segment} ({size_text(segment.stat().st_size)})")
            if not _is_narrow():
                write_line("  ".join(name.rjust(width) for name, width in _COLUMNS))
        for frame in walk_segment(segment, tally, with_records=with_records):
            if as_json:
                write_line(json_line(_document(frame)))
            else:
                for line in _row_lines(frame):
                    write_line(line)
                _write_records(frame)
    if not as_json:
        write_note(str(tally))
    return tally


def _verify(segments: list[Path], *, as_json: bool) -> LogTally:
    from tidelog.cli.log_check import check_segments

    with progress_bar("checking", sum(path.stat().st_size for path in segments)) as advance:
        tally = check_segments(segments, advance)
    if as_json:
        write_json(
            {
                "segments": tally.segments,
                "batches": tally.batches,
                "records": tally.records,
                "size_bytes": tally.size_bytes,
                "fault_count": tally.fault_count,
                "faults": [
                    fault._asdict() | {"segment": str(fault.segment)} for fault in tally.faults
                ],
            }
        )
    else:
        write_line(f"{tally}: {'DAMAGED' if tally.fault_count else 'sound'}")
    return tally


def _write_faults(tally: LogTally) -> None:
    if not tally.fault_count:
        return
    lines = [f"{plural(tally.fault_count, 'place')} damaged:"]
    lines += [f"  {fault}" for fault in tally.faults]
    if tally.fault_count > len(tally.faults):
        lines.append(f"  and {tally.fault_count - len(tally.faults):,} more")
    write_error("\n".join(lines))


def _is_narrow() -> bool:
    """Whether the terminal would break the lines of the table."""
    table = sum(width + COLUMN_GAP for _, width in _COLUMNS) - COLUMN_GAP
    return terminal_width() < table


def _row_lines(frame: CheckedFrame) -> list[str]:
    info = frame.info
    header = info.header
    if info.fault is not None or header is None:
        return [f"{info.position:>12}  {info.size:>9}  DAMAGED: {info.fault}"]
    producer = "-"
    if header.producer_id != NO_PRODUCER_ID:
        producer = f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}"
    cells = (
        info.position,
        info.size,
        header.base_offset,
        header.next_offset - 1,
        header.record_count,
        header.leader_epoch,
        _codec_name(header.codec),
        timestamp_text(header.base_timestamp_ms),
        producer,
    )
    if _is_narrow():
        named = (f"{name} {cell}" for cell, (name, _) in zip(cells, _COLUMNS, strict=True))
        return wrapped(", ".join(named), terminal_width())
    padded = (str(cell).rjust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
    return ["  ".join(padded)]


def _codec_name(codec: int) -> str:
    try:
        return Codec(codec).name.lower()
    except ValueError:
        return str(codec)


def _write_records(frame: CheckedFrame) -> None:
    header, columns = frame.info.header, frame.columns
    if columns is None or header is None:
        return
    rows = zip(columns.timestamps_ms, columns.keys, columns.values, strict=True)
    for index, (timestamp_ms, key, value) in enumerate(rows):
        headers = "".join(
            f"  {name}={shown_bytes(content)}" for name, content in columns.headers.get(index, ())
        )
        write_line(
            f"    {header.base_offset + index}  {timestamp_text(timestamp_ms)}  "
            f"{shown_bytes(key)}  {shown_bytes(value)}{headers}"
        )


def _document(frame: CheckedFrame) -> dict[str, Any]:
    header, columns = frame.info.header, frame.columns
    document: dict[str, Any] = {
        "segment": str(frame.segment),
        "position": frame.info.position,
        "size_bytes": frame.info.size,
        "fault": frame.info.fault,
    }
    if header is not None:
        document |= header._asdict() | {"codec": _codec_name(header.codec)}
    if header is not None and columns is not None:
        document["records"] = [
            {
                "offset": header.base_offset + index,
                "timestamp_ms": columns.timestamps_ms[index],
                **bytes_fields("key", columns.keys[index]),
                **bytes_fields("value", columns.values[index]),
                "headers": [
                    {"key": name, **bytes_fields("value", content)}
                    for name, content in columns.headers.get(index, ())
                ],
            }
            for index in range(header.record_count)
        ]
    return document
