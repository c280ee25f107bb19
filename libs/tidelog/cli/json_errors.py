"""Errors of a command as `--json` prints them. Their codes and messages are those that gRPC and the
REST gateway return for the same input."""

from __future__ import annotations

from typing import Any, cast

import typer
from typer.core import TyperGroup

from tidelog.cli.exit_status import ConfirmationRequiredError, ExitStatus, status_of
from tidelog.cli.output import write_json
from tidelog.errors import FINAL_ANSWERS, ErrorCode, TidelogError

# The base class of the parser's errors; `BadParameter` is one kind of them.
ParserError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
# The codes of errors that are not the cluster's. Two are not in `ErrorCode`: the cluster was not
# reached, or something else failed.
_CODES = {
    ExitStatus.USAGE: ErrorCode.INVALID_REQUEST.name,
    ExitStatus.TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT.name,
    ExitStatus.UNREACHABLE: "UNREACHABLE",
}
_OS_ERROR = "OS_ERROR"


def json_error(error: BaseException, message: str = "") -> dict[str, dict[str, Any]]:
    """Returns the JSON document of an error. `message` replaces the error's own message.

    >>> json_error(UsageError("no moves are named"))["error"]["code"]
    'INVALID_REQUEST'
    """
    status = ExitStatus.USAGE if isinstance(error, ParserError) else status_of(error)
    code = _CODES.get(status, _OS_ERROR)
    retriable = status in (ExitStatus.UNREACHABLE, ExitStatus.TIMED_OUT)
    outcome_unknown = status is ExitStatus.TIMED_OUT
    if isinstance(error, ConfirmationRequiredError):
        code = ErrorCode.NOT_CONFIRMED.name
    if isinstance(error, TidelogError):
        code = error.code.name
        retriable = error.retriable and error.code not in FINAL_ANSWERS
        outcome_unknown = error.outcome_unknown
    return {
        "error": {
            "code": code,
            "message": message or str(error),
            "retriable": retriable,
            "outcome_unknown": outcome_unknown,
        }
    }


class CommandLine(TyperGroup):
    """The root command. It prints parse errors as JSON, too, with `--json`."""

    def invoke(self, ctx: Any) -> Any:
        words = (*ctx._protected_args, *ctx.args)
        try:
            return super().invoke(ctx)
        except ParserError as error:
            if ctx.params.get("as_json") or "--json" in words:
                write_json(json_error(error, error.format_message()))
            raise
