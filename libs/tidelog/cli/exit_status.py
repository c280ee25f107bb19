"""The exit statuses of `tidelog`, for scripts (`EPILOG`), and the status of each error."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from tidelog.errors import ErrorCode, TidelogError


class ExitStatus(enum.IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    # An alias: what a dry run of `apply` compared differs.
    DRIFT = 3
    UNREACHABLE = 4
    TIMED_OUT = 5
    INTERRUPTED = 130


# \b keeps typer from joining the lines that follow.
EPILOG = """\b
Exit status:
  0    done
  1    rejected or failed; or a log that is damaged, a backup that is damaged
       or lacks records, a history with anomalies, a finding of explain, a
       broker that cannot be stopped without harm, an operation that failed
  2    wrong usage: an option, an argument, a file that cannot be read
  3    no such topic, partition, broker or operation; or a dry run of apply
       found differences
  4    the cluster cannot be reached
  5    timed out, or the outcome is not known
  130  interrupted by Ctrl-C before it was done
"""

_NOT_FOUND = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_BROKER,
        ErrorCode.UNKNOWN_OPERATION,
    }
)


class UsageError(Exception):
    """The request is invalid; the message says what would be valid."""


class ConfirmationRequiredError(UsageError):
    """A destructive command was not confirmed, and without a terminal it cannot ask."""


class ClusterUnreachableError(Exception):
    """No service listens at any of the addresses."""


class TimedOutError(Exception):
    """The command was not done within its time limit, or it is unknown whether it was done."""


def status_of(error: BaseException) -> ExitStatus:
    """
    >>> status_of(TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'sea'")).name
    'NOT_FOUND'
    """
    if isinstance(error, UsageError | FileNotFoundError):
        return ExitStatus.USAGE
    if isinstance(error, TimedOutError):
        return ExitStatus.TIMED_OUT
    if _is_unreachable(error):
        return ExitStatus.UNREACHABLE
    if isinstance(error, TidelogError):
        if error.code in _NOT_FOUND:
            return ExitStatus.NOT_FOUND
        if error.outcome_unknown or error.code is ErrorCode.REQUEST_TIMED_OUT:
            return ExitStatus.TIMED_OUT
    return ExitStatus.FAILED


def status_of_results(errors: Iterable[TidelogError | None]) -> ExitStatus:
    """Returns the status of several results; None means done. A rejection outranks a timeout."""
    codes = {error.code for error in errors if error is not None}
    rejections = codes - {ErrorCode.REQUEST_TIMED_OUT}
    if rejections:
        return ExitStatus.NOT_FOUND if rejections <= _NOT_FOUND else ExitStatus.FAILED
    return ExitStatus.TIMED_OUT if codes else ExitStatus.DONE


def _is_unreachable(error: BaseException) -> bool:
    if isinstance(error, ClusterUnreachableError):
        return True
    # Imported here because it imports gRPC; code that raises it has imported gRPC already.
    from tidelog.rpc.status import UnreachableError

    if isinstance(error, UnreachableError):
        return True
    # If no broker answers, the client raises an error of its own, chained to what it saw.
    return (
        isinstance(error, TidelogError)
        and error.code is ErrorCode.REQUEST_TIMED_OUT
        and isinstance(error.__cause__, UnreachableError)
    )
