"""Output of commands: tables for people, JSON for programs, notes on stderr."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Tables for files and pipes are never wrapped: an id or address that is broken cannot be copied.
PLAIN_WIDTH = 10_000
# Spaces between two columns of a table.
COLUMN_GAP = 2
# A cell of this many words or more may be wrapped.
PROSE_WORDS = 5
# Keys and values in tables and dumps for people are truncated after this many characters.
MAX_SHOWN_CHARACTERS = 80
_ENCODING_SUFFIX = "_encoding"
_TABS_AND_NEWLINES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


def bytes_fields(name: str, value: bytes | None) -> dict[str, str | None]:
    """Returns a field with text as it is, or in base64 with a second field for the encoding.

    >>> bytes_fields("key", b"north")
    {'key': 'north'}
    >>> bytes_fields("key", bytes([255]))
    {'key': '/w==', 'key_encoding': 'base64'}
    """
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode(), name + _ENCODING_SUFFIX: "base64"}


def shown_bytes(value: bytes | None) -> str:
    """Returns a key or value on one line, truncated if it is long.

    >>> shown_bytes(b"ebb"), shown_bytes(None), shown_bytes(bytes([255]))
    ('ebb', 'null', "b'\\\\xff'")
    """
    if value is None:
        return "null"
    # A character has at most four bytes, so decoding this much is enough, and cheap.
    head = value[: 4 * MAX_SHOWN_CHARACTERS + 4]
    try:
        text = head.decode("utf-8", "strict" if len(head) == len(value) else "ignore")
        text = text.translate(_TABS_AND_NEWLINES)
        if not text.isprintable():
            text = repr(head)
    except UnicodeDecodeError:
        text = repr(head)
    if len(text) > MAX_SHOWN_CHARACTERS or len(head) < len(value):
        return f"{text[:MAX_SHOWN_CHARACTERS]}… ({len(value):,} bytes)"
    return text


def timestamp_text(timestamp_ms: int) -> str:
    """Returns ISO 8601 in UTC, or the number itself if it is out of range.

    >>> timestamp_text(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    try:
        seconds = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{seconds:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def size_text(size_bytes: float) -> str:
    """
    >>> size_text(512), size_text(3_400_000)
    ('512 B', '3.4 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000 or unit == "GB":
            break
        size_bytes /= 1000
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"


def duration_text(duration_ms: int) -> str:
    """
    >>> duration_text(900), duration_text(200_000), duration_text(7_500_000)
    ('1 s', '3 min 20 s', '2 h 5 min')
    """
    seconds = max(0, -(-duration_ms // 1000))
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"


def ids_text(ids: Sequence[int]) -> str:
    """
    >>> ids_text((1, 2)), ids_text(())
    ('1,2', '-')
    """
    return ",".join(map(str, ids)) or "-"


def json_line(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def write_line(text: str = "") -> None:
    # Bytes of a file name that are not UTF-8 must not keep a command from printing it.
    line = text.encode("utf-8", "surrogateescape") + b"\n"
    sys.stdout.flush()
    sys.stdout.buffer.write(line)


def write_json(document: object) -> None:
    """Writes one indented document."""
    write_line(json.dumps(document, ensure_ascii=False, indent=2))


def write_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    for line in table_lines(columns, rows, on_terminal=sys.stdout.isatty()):
        write_line(line)


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    on_terminal: bool,
    width: int | None = None,
) -> list[str]:
    """Returns aligned columns, with numbers to the right, and colour only on a terminal.

    On a terminal it uses the first layout that fits into `width` (None: the actual width): a table;
    a table whose prose is wrapped at words; a block of lines for each row. Only prose is wrapped:
    an id, an address or a state stays in one piece, so that it can be read and copied.
    """
    import io

    from rich.console import Console
    from rich.text import Text

    console = Console(
        file=io.StringIO(),
        force_terminal=on_terminal,
        # Without rows there is nothing to arrange in blocks.
        width=width if on_terminal and rows else PLAIN_WIDTH,
    )
    cells = [[c if isinstance(c, Text) else Text(str(c)) for c in row] for row in rows]
    widths = _column_widths(columns, [[cell.plain for cell in row] for row in cells], console.width)
    if widths is None:
        return _blocks(columns, cells, console)
    return _table(columns, rows, cells, widths, console)


def _column_widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[int] | None:
    """Returns widths in terminal cells; some characters take two. None if no table fits."""
    from rich.cells import cell_len

    def least_of(cell: str) -> int:
        return max(map(cell_len, cell.split() if _is_prose(cell) else [cell]))

    free = width - COLUMN_GAP * (len(columns) - 1)
    natural = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    if sum(natural) <= free:
        return natural
    least = [
        max([cell_len(name), *map(least_of, column)])
        for name, *column in zip(columns, *rows, strict=True)
    ]
    spare = free - sum(least)
    if spare < 0 or least == natural:
        return None
    wanting = sum(wide - narrow for wide, narrow in zip(natural, least, strict=True))
    return [
        narrow + spare * (wide - narrow) // wanting
        for wide, narrow in zip(natural, least, strict=True)
    ]


def _is_prose(cell: str) -> bool:
    return len(cell.split()) >= PROSE_WORDS


def _table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    cells: Sequence[Sequence[Text]],
    widths: Sequence[int],
    console: Console,
) -> list[str]:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[position], int) for row in rows)
        justify: Literal["left", "right"] = "right" if numbers else "left"
        table.add_column(column, justify=justify, width=widths[position], overflow="fold")
    for row in cells:
        table.add_row(*row)
    with console.capture() as rendered:
        console.print(table)
    return [line.rstrip() for line in rendered.get().splitlines()]


def _blocks(columns: Sequence[str], cells: Sequence[Sequence[Text]], console: Console) -> list[str]:
    """Returns a line for each cell, with an empty line between two rows. Long lines are not
    wrapped."""
    name_width = max(map(len, columns)) + COLUMN_GAP
    lines: list[str] = []
    for row in cells:
        if lines:
            lines.append("")
        for column, cell in zip(columns, row, strict=True):
            with console.capture() as rendered:
                console.print(column.ljust(name_width), cell, sep="", soft_wrap=True, style=None)
            lines.append(rendered.get().rstrip())
    return lines


def write_note(text: str) -> None:
    """Writes a message beside the data, to stderr."""
    import typer

    sys.stdout.flush()
    typer.echo(text, err=True)


def write_error(text: str) -> None:
    import typer

    sys.stdout.flush()
    typer.secho("error: ", err=True, nl=False, fg="red", bold=True)
    typer.echo(text, err=True)


@contextmanager
def progress_bar(description: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Yields a function that adds to the number of processed bytes. Shows nothing unless stderr is
    a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total_bytes)
        yield lambda more: progress.advance(task, more)
