"""Finds calls of a consumer whose `await` was forgotten, such as `consumer.seek_to_end()`.

Such a call has no effect, and Python only prints a warning. So the next call that returns records
raises INVALID_REQUEST instead of returning records from another position.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from tidelog.errors import ErrorCode, TidelogError

# Calls that are kept for the check; a program that forgets more has forgotten these as well.
MAX_KEPT_CALLS = 16


class UnawaitedCalls:
    """Position-changing calls of one consumer since records were last requested."""

    def __init__(self) -> None:
        # Empty at nearly every request for records, so that a test of its truth is the check.
        self.kept: deque[tuple[str, Coroutine[Any, Any, Any]]] = deque(maxlen=MAX_KEPT_CALLS)

    def keep(self, name: str, call: Coroutine[Any, Any, Any]) -> None:
        self.kept.append((name, call))

    def check(self) -> None:
        """Forgets the calls. Raises INVALID_REQUEST if one of them has not begun."""
        calls, kept = [*self.kept], self.kept
        kept.clear()
        forgotten = [
            name for name, call in calls if inspect.getcoroutinestate(call) == inspect.CORO_CREATED
        ]
        if forgotten:
            names = ", ".join(dict.fromkeys(forgotten))
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{names} was called without await before records were requested, and has had no "
                f"effect; write `await consumer.{forgotten[0]}(...)`",
            )


class _Positioned(Protocol):
    _unawaited: UnawaitedCalls

    @property
    def _is_called_by_other_threads(self) -> bool: ...


_Client = TypeVar("_Client", bound=_Positioned)


def must_be_awaited(*names: str) -> Callable[[type[_Client]], type[_Client]]:
    """Returns a class decorator that keeps the coroutines of these methods for the check."""

    def decorate(client: type[_Client]) -> type[_Client]:
        for name in names:
            setattr(client, name, _kept(getattr(client, name)))
        return client

    return decorate


def _kept(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: _Positioned, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        made = method(self, *args, **kwargs)
        # A caller in another thread hands the coroutine to the event loop, which begins it later.
        if not self._is_called_by_other_threads and asyncio._get_running_loop() is not None:
            self._unawaited.keep(method.__name__, made)
        return made

    return call
