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
# Prose outside of tables is not wider than this on a terminal.
PARAGRAPH_WIDTH = 100
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

    free = width - COLUMN_GAP * (len(columns) - 1)
    natural = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    if sum(natural) <= free:
        return natural
    least = [
        max([cell_len(name), *map(_widest_word, column)])
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
    """Returns a line for each cell, with an empty line between two rows. Prose is wrapped at words.
    A value that does not fit beside its name is on a line of its own."""
    from rich.cells import cell_len

    name_width = max(map(cell_len, columns)) + COLUMN_GAP
    lines: list[str] = []
    for row in cells:
        if lines:
            lines.append("")
        for column, cell in zip(columns, row, strict=True):
            beside = console.width - name_width
            name = column.ljust(name_width)
            if cell.cell_len <= beside or _widest_word(cell.plain) > console.width:
                lines.append(_rendered(console, name, cell))
                continue
            indent = name_width if _widest_word(cell.plain) <= beside else 0
            pieces = cell.wrap(console, console.width - indent)
            lines += [name.rstrip()] if not indent else []
            for number, piece in enumerate(pieces):
                first = name if indent and not number else " " * indent
                lines.append(_rendered(console, first, piece))
    return lines


def _widest_word(cell: str) -> int:
    """Returns the width of the longest part that stays in one piece."""
    from rich.cells import cell_len

    return max(map(cell_len, cell.split() if _is_prose(cell) else [cell]), default=0)


def _rendered(console: Console, name: str, cell: Text) -> str:
    with console.capture() as rendered:
        console.print(name, cell, sep="", soft_wrap=True, style=None)
    return rendered.get().rstrip()


def terminal_width(most: int = PLAIN_WIDTH) -> int:
    """Returns the width of the terminal, at most `most`; `most` for files and pipes."""
    import shutil

    return min(most, shutil.get_terminal_size().columns) if sys.stdout.isatty() else most


def write_field(name: str, text: str, name_width: int) -> None:
    for line in field_lines(name, text, name_width, terminal_width()):
        write_line(line)


def field_lines(name: str, text: str, name_width: int, width: int) -> list[str]:
    """Returns one line, or, if that is wider than `width`, lines that are wrapped at words: an
    address that is broken cannot be copied.

    >>> field_lines("Standby", "2 at a:1, 3 at b:1", 10, 80)
    ['Standby   2 at a:1, 3 at b:1']
    >>> field_lines("Standby", "2 at a:1, 3 at b:1", 10, 19)
    ['Standby', '  2 at a:1, 3 at', '  b:1']
    """
    from rich.cells import cell_len

    line = name.ljust(name_width) + text
    if cell_len(line) <= width:
        return [line]
    return [name, *wrapped(text, width)]


def paragraph(text: str, *, on_terminal: bool) -> list[str]:
    """Returns lines of at most PARAGRAPH_WIDTH on a terminal, wrapped at words alone; one line for
    files and pipes."""
    import shutil
    import textwrap

    if not on_terminal:
        return [text]
    width = min(PARAGRAPH_WIDTH, shutil.get_terminal_size().columns)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def wrapped(text: str, width: int) -> list[str]:
    """Returns indented lines that are wrapped at words alone. A word that is wider than a line is
    not indented."""
    import textwrap

    indent = "  " if max(map(len, text.split()), default=0) <= width - 2 else ""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


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
