"""A broker without memory ends with one line instead of the event loop's traceback."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop

from tidelog_broker import __main__ as program
from tidelog_broker.incarnation import EXIT_FAULT


@pytest.mark.parametrize("why", ["can't start new thread", "another fault"])
def test_a_failed_thread_start_at_the_end_of_the_loop_logs_one_line(
    why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(coroutine: Any) -> int:
        coroutine.close()
        raise RuntimeError(why)

    monkeypatch.setattr(sys, "argv", ["broker", "--broker-id", "1", "--data-dir", str(tmp_path)])
    monkeypatch.setattr(uvloop, "run", run)
    monkeypatch.setattr(program, "hold_lock", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(program, "configure_logging", lambda *_, **__: None)
    with structlog.testing.capture_logs() as lines:
        if why == "another fault":
            with pytest.raises(RuntimeError):
                program.main()
            return
        assert program.main() == EXIT_FAULT
    assert [line["event"] for line in lines] == ["out_of_memory"]
