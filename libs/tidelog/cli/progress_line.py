"""One line of progress on stderr, at a bounded rate: in place on a terminal, else line by line."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from tidelog.cli.output import write_note

TERMINAL_INTERVAL_SECONDS = 0.5
# Lines of a log file stay, so they are fewer.
FILE_INTERVAL_SECONDS = 5.0
# A longer line would be wrapped, and its first row would stay.
MAX_CHARACTERS = 79
_RETURN_AND_CLEAR = "\r\x1b[K"


@asynccontextmanager
async def progress_shown(
    line: Callable[[float], str], is_requested: bool | None = None
) -> AsyncIterator[None]:
    """Shows progress while the block runs.

    - `line`: gets the seconds since its last call, or since the start.
    - `is_requested`: None: if stderr is a terminal.
    """
    import asyncio

    on_terminal = sys.stderr.isatty()
    if not (on_terminal if is_requested is None else is_requested):
        yield
        return
    loop = asyncio.get_running_loop()
    interval = TERMINAL_INTERVAL_SECONDS if on_terminal else FILE_INTERVAL_SECONDS

    async def show() -> None:
        last = loop.time()
        while True:
            await asyncio.sleep(interval)
            now = loop.time()
            text = line(now - last)
            last = now
            if on_terminal:
                sys.stderr.write(_RETURN_AND_CLEAR + text[:MAX_CHARACTERS])
                sys.stderr.flush()
            else:
                write_note(text)

    showing = asyncio.create_task(show())
    try:
        yield
    finally:
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing
        if on_terminal:
            sys.stderr.write(_RETURN_AND_CLEAR)
            sys.stderr.flush()
