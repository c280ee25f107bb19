"""A failed start is reported whatever the error. Otherwise `explain` would name the start before
it.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs

from tidelog_broker import __main__ as program
from tidelog_broker.storage.data_directory import DataDirectoryError
from tidelog_runtime.metadata.broker_directories import RejectionCause
from tidelog_runtime.metadata.cluster_id import UnsupportedLevelError


class Process:
    """`error` is the failure of the start. `report_fails` makes the report fail too, as without
    memory.
    """

    def __init__(self, error: Exception, *, report_fails: bool = False) -> None:
        self.error = error
        self.report_fails = report_fails
        self.reported: list[tuple[RejectionCause, str]] = []

    def run(self, coroutine: Any) -> int:
        name = coroutine.__name__
        given = inspect.getcoroutinelocals(coroutine)
        coroutine.close()
        if name == "run":
            raise self.error
        assert name == "report_rejection"
        if self.report_fails:
            raise MemoryError
        self.reported.append((program.cause_of(given["error"]), given["why"]))
        return 0

    def main(self, monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> int:
        arguments = ["broker", "--broker-id", "1", "--data-dir", str(data_dir)]
        monkeypatch.setattr(sys, "argv", arguments)
        monkeypatch.setattr(uvloop, "run", self.run)
        monkeypatch.setattr(program, "hold_lock", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(program, "configure_logging", lambda *_, **__: None)
        return program.main()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (DataDirectoryError("of another cluster"), RejectionCause.DATA_DIRECTORY),
        (DataDirectoryError("wiped", RejectionCause.STORE), RejectionCause.STORE),
        (UnsupportedLevelError("of a later release"), RejectionCause.VERSION),
        (OSError("no such device"), RejectionCause.DISK),
        (MemoryError(), RejectionCause.OTHER),
    ],
)
def test_a_start_that_fails_is_one_line_and_one_report(
    error: Exception, cause: RejectionCause, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process = Process(error)
    with capture_logs() as lines:
        assert process.main(monkeypatch, tmp_path) == program.EXIT_CANNOT_START
    assert [line["event"] for line in lines] == ["cannot_start"]
    assert process.reported == [(cause, lines[0]["why"])]


@pytest.mark.parametrize("error", [RuntimeError("no such state"), AssertionError("no such state")])
def test_a_defect_is_reported_and_shows_its_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process = Process(error)
    with pytest.raises(type(error)):
        process.main(monkeypatch, tmp_path)
    why = f"{type(error).__name__}: no such state"
    assert process.reported == [(RejectionCause.OTHER, why)]


@pytest.mark.parametrize("error", [MemoryError(), OSError("no such device")])
def test_a_failed_report_hides_no_failed_start(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with capture_logs() as lines:
        status = Process(error, report_fails=True).main(monkeypatch, tmp_path)
    assert status == program.EXIT_CANNOT_START
    assert [line["event"] for line in lines] == ["cannot_start"]
