"""Recognizes the errors that Python and protobuf raise when the process may not use more memory."""

from __future__ import annotations

import traceback
from pathlib import PurePath

from google.protobuf.message import DecodeError

# How protobuf ends the message of a DecodeError for this reason.
_PARSED_WITHOUT_MEMORY = "Arena alloc failed"


def is_memory_shortage(error: BaseException | None) -> bool:
    """Whether the error reports a lack of memory. A thread that cannot be started usually lacks
    memory for its stack."""
    if isinstance(error, RuntimeError):
        return "can't start new thread" in str(error)
    if isinstance(error, DecodeError):
        return _PARSED_WITHOUT_MEMORY in str(error)
    return isinstance(error, MemoryError)


def shortage_in(error: BaseException | None) -> BaseException | None:
    """Returns the error if it reports a lack of memory, or the first such error of a group."""
    if isinstance(error, BaseExceptionGroup):
        found = (shortage_in(member) for member in error.exceptions)
        return next((shortage for shortage in found if shortage is not None), None)
    return error if is_memory_shortage(error) else None


def is_only_shortage(error: BaseException | None) -> bool:
    """Whether the error, or each error of a group, reports a lack of memory."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_only_shortage(member) for member in error.exceptions)
    return is_memory_shortage(error)


def described(error: BaseException) -> str:
    """Returns a message that names the shortage and what to do about it."""
    return (
        f"{type(error).__name__}: the process may not use more memory; raise its limit (ulimit -v, "
        "or that of its container)"
    )


def origin(error: BaseException) -> str:
    """Returns "file.py:line function: message": where the error was raised, and its own message.

    It points to a bug that raises such an error although there is memory, for example by a wrong
    length. Parts that the error lacks are left out.
    """
    where = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        where = f"{PurePath(frame.f_code.co_filename).name}:{line} {frame.f_code.co_name}"
    return ": ".join(part for part in (where, str(error)) if part)
