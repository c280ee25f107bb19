"""Reads state changes from log files of services, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.cli.exit_status import UsageError
from tidelog.cli.lines import LineSplitter
from tidelog.cli.trace_targets import parse_target
from tidelog.state_changes.log_lines import LogLines
from tidelog.state_changes.tracing import TraceScope

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20
# Longer than any event. No more than this is held of a file that is no log.
_MAX_LINE_BYTES = 1 << 20


class FileTargets(NamedTuple):
    paths: tuple[Path, ...]
    scope: TraceScope


def split_targets(targets: Sequence[str], since_ms: int = 0) -> FileTargets:
    """Splits arguments into files and at most one TOPIC or TOPIC/P. Raises `UsageError` for more
    than one of the latter, and if there is no file."""
    paths = [Path(target) for target in targets if Path(target).is_file()]
    others = [target for target in targets if not Path(target).is_file()]
    for other in others:
        if Path(other).is_dir():
            raise UsageError(f"{other} is a directory; name the log files in it, as {other}/*.log")
    if len(others) > 1:
        raise UsageError(
            f"there are no files {', '.join(others)}; give log files, and at most one TOPIC or "
            "TOPIC/P besides"
        )
    if not paths:
        raise UsageError("--files needs log files, as in: tidelog trace --files *.log sea/0")
    scope = parse_target(others[0]) if others else TraceScope()
    return FileTargets(tuple(paths), scope._replace(since_ms=since_ms))


class LogsRead(NamedTuple):
    """`damaged`: the faults of truncated or corrupt gzip files, which were read up to the fault."""

    lines: LogLines
    damaged: Mapping[Path, str]


def read_logs(paths: Sequence[Path], scope: TraceScope) -> LogsRead:
    """Raises `OSError` for a file that cannot be read."""
    lines, damaged = LogLines(scope), dict[Path, str]()
    for path in paths:
        with path.open("rb") as plain:
            zipped = plain.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            plain.seek(0)
            if not zipped:
                lines.take(_lines_of(plain.read))
                continue
            with gzip.open(plain) as unzipped:
                try:
                    # `read` would discard the data that it decompressed before the fault.
                    lines.take(_lines_of(unzipped.read1))
                except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                    damaged[path] = str(error)
    return LogsRead(lines, damaged)


def _lines_of(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yields lines; one that is too long becomes an empty line."""
    splitter = LineSplitter(_MAX_LINE_BYTES)
    while chunk := read(_CHUNK_BYTES):
        for line in splitter.feed(chunk):
            yield line.data or b""
    for line in splitter.end():
        yield line.data or b""
