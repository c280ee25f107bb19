"""What Python raises where the process may not use more memory."""

from __future__ import annotations


def is_memory_shortage(error: BaseException | None) -> bool:
    """A thread that cannot be started lacks memory for its stack, mostly."""
    if isinstance(error, RuntimeError):
        return "can't start new thread" in str(error)
    return isinstance(error, MemoryError)


def described(error: BaseException) -> str:
    """A shortage of memory, and what to do about it."""
    return (
        f"{type(error).__name__}: the process may not use more memory; raise its limit (ulimit -v, "
        "or that of its container)"
    )
