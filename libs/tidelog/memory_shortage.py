"""Recognizes the errors that Python and protobuf raise when the process may not use more memory."""

from __future__ import annotations

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


def described(error: BaseException) -> str:
    """Returns a message that names the shortage and what to do about it."""
    return (
        f"{type(error).__name__}: the process may not use more memory; raise its limit (ulimit -v, "
        "or that of its container)"
    )
