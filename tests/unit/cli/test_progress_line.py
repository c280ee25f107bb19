"""Progress on stderr, at a bounded rate."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from tidelog.cli import progress_line
from tidelog.cli.produce_tally import ProduceTally
from tidelog.cli.producing import InputFormat, OnError, ProduceRequest
from tidelog.cli.progress_line import progress_shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def shown(line: str, is_requested: bool | None) -> None:
    async with progress_shown(lambda _: line, is_requested):
        # The interval is 0 here: a turn of the loop or two for each line.
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "TERMINAL_INTERVAL_SECONDS", 0)
    monkeypatch.setattr(progress_line, "FILE_INTERVAL_SECONDS", 0)


async def test_a_terminal_has_one_line_that_is_cleared_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    await shown("7 records" + "x" * 200, None)
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[1].startswith("7 records")
    assert max(map(len, lines)) == progress_line.MAX_CHARACTERS
    assert lines[-1] == ""
    assert "\n" not in terminal.getvalue()


async def test_a_file_has_no_progress_unless_it_is_requested(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await shown("7 records", None)
    assert capsys.readouterr().err == ""
    await shown("7 records", True)
    assert capsys.readouterr().err.splitlines()[0] == "7 records"


async def test_a_terminal_has_no_progress_if_it_is_unwelcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    await shown("7 records", False)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("is_typed", "file", "progress", "shows"),
    [
        (True, None, None, False),
        (True, None, True, True),
        (True, Path("lines"), None, None),
        (False, None, None, None),
    ],
)
def test_progress_does_not_overwrite_typed_lines(
    monkeypatch: pytest.MonkeyPatch,
    is_typed: bool,
    file: Path | None,
    progress: bool | None,
    shows: bool | None,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal() if is_typed else io.StringIO())
    request = ProduceRequest(
        "sea", None, InputFormat.VALUE, None, False, file, OnError.SKIP, progress, {}
    )
    assert request.shows_progress is shows


def test_progress_has_the_rate_since_the_last_line_and_the_share_of_the_input() -> None:
    tally = ProduceTally()
    tally.delivered_more(3_000, 30_000)
    tally.unsent = 2
    assert tally.progress(0.5, 1_000, 0.25) == (
        "3,000 records (30.0 kB) delivered, 4,000 records/s, 25 % of the input, 2 not delivered"
    )
    assert tally.progress(0.0, 0, None).endswith("delivered, 0 records/s, 2 not delivered")
