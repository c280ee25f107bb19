"""What refuses a command, as `--json` tells it: with the code that gRPC and the REST gateway give
the same bad input, in the same words."""

from __future__ import annotations

from typing import Any, cast

import typer
from typer.core import TyperGroup

from tidelog.cli.exit_status import (
    ExitStatus,
    NotConfirmedError,
    TimedOutError,
    UsageError,
    status_of,
)
from tidelog.cli.output import write_json
from tidelog.errors import FINAL_ANSWERS, ErrorCode, TidelogError

# What the parser raises, of which a wrong value is one kind.
ParserError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
# Of what is no error of the cluster: it was never asked, or something else failed.
UNREACHABLE = "UNREACHABLE"
OS_ERROR = "OS_ERROR"


def refusal_document(error: BaseException, message: str = "") -> dict[str, dict[str, Any]]:
    """`message`: in place of the error's own.

    >>> refusal_document(UsageError("no moves are named"))["error"]["code"]
    'INVALID_REQUEST'
    """
    status = ExitStatus.USAGE if isinstance(error, ParserError) else status_of(error)
    retriable = status in (ExitStatus.UNREACHABLE, ExitStatus.TIMED_OUT)
    outcome_unknown = status is ExitStatus.TIMED_OUT
    if isinstance(error, TidelogError):
        retriable = error.retriable and error.code not in FINAL_ANSWERS
        outcome_unknown = error.outcome_unknown
    told = {
        "code": code_of(error),
        "message": message or str(error),
        "retriable": retriable,
        "outcome_unknown": outcome_unknown,
    }
    return {"error": told}


def code_of(error: BaseException) -> str:
    """A name of `ErrorCode`, or one of those above."""
    if isinstance(error, TidelogError):
        return error.code.name
    if isinstance(error, NotConfirmedError):
        return ErrorCode.NOT_CONFIRMED.name
    if isinstance(error, (UsageError, ParserError, FileNotFoundError)):
        return ErrorCode.INVALID_REQUEST.name
    if isinstance(error, TimedOutError):
        return ErrorCode.REQUEST_TIMED_OUT.name
    if status_of(error) is ExitStatus.UNREACHABLE:
        return UNREACHABLE
    return OS_ERROR


class CommandLine(TyperGroup):
    """The root command. Words that cannot be parsed are refused as everything else is."""

    def invoke(self, ctx: Any) -> Any:
        words = (*ctx._protected_args, *ctx.args)
        try:
            return super().invoke(ctx)
        except ParserError as error:
            if ctx.params.get("as_json") or "--json" in words:
                write_json(refusal_document(error, error.format_message()))
            raise
