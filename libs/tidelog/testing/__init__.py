"""Tests of programs that use Tidelog: on a broker in memory, or on a real cluster of this machine.

`MemoryBroker` is for unit tests. `plugin` has the fixtures of pytest, `cluster` the cluster that
they return. Needs the extra `testing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.testing.memory_broker import MemoryBroker

__all__ = ["MemoryBroker"]


def __getattr__(name: str) -> Any:
    # pytest imports this package for its plugin at each start, and gRPC would delay it.
    if name == "MemoryBroker":
        from tidelog.testing.memory_broker import MemoryBroker

        return MemoryBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
