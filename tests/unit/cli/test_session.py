"""How errors end commands."""

from __future__ import annotations

import pytest
import typer

from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.session import ending_with_a_status
from tidelog.rpc.status import UnreachableError


def test_a_service_that_cannot_be_reached_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, ending_with_a_status():
        raise UnreachableError("127.0.0.1:1", "connection refused")
    assert ended.value.exit_code == ExitStatus.UNREACHABLE
    assert capsys.readouterr().err == "error: no answer from 127.0.0.1:1: connection refused\n"


def test_a_fault_is_not_taken_for_an_error_that_somebody_can_mend() -> None:
    with pytest.raises(LookupError), ending_with_a_status():
        raise LookupError("a bug")
