"""What calls return that have taken effect already, and may be awaited for a confirmation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Confirmation:
    """Result of `Consumer.assign` and `Consumer.seek`, which have taken effect when they return.

    Awaiting it is optional, and may be repeated. It asks a broker about the partitions unless the
    client knows them, and raises UNKNOWN_TOPIC_OR_PARTITION if one does not exist; without it,
    `poll` raises this. Raises as calls of the consumer in another event loop, thread or process,
    and once the consumer is closed."""

    __slots__ = ("_confirm",)

    def __init__(self, confirm: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._confirm = confirm

    def __await__(self) -> Generator[Any, None, None]:
        return self._confirm().__await__()
