"""How errors end commands."""

from __future__ import annotations

import pytest
import typer

from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.session import ending_with_a_status
from tidelog.rpc.status import UnreachableError


def test_an_unreachable_service_is_not_an_internal_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended, ending_with_a_status():
        raise UnreachableError("127.0.0.1:1", "connection refused")
    assert ended.value.exit_code == ExitStatus.UNREACHABLE
    assert capsys.readouterr().err == "error: no answer from 127.0.0.1:1: connection refused\n"


def test_an_internal_error_is_not_taken_for_one_the_operator_can_repair() -> None:
    with pytest.raises(LookupError), ending_with_a_status():
        raise LookupError("a bug")
