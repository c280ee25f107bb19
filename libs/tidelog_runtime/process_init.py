"""Shortens the start of a service. A service's `__main__` imports this module first.

Several services often start together on few cores, and most of their start time is spent on
imports. Two costs make up a third of it and bring a service nothing:

- structlog imports rich, if installed, to draw tracebacks in colour;
- the garbage collector inspects the imported objects again and again.
"""

from __future__ import annotations

import gc
import os
import sys

# How long a thread that runs Python code can hold the interpreter each time the event loop has
# waited. An answer takes several iterations of the loop. Python's default is 5 ms.
SWITCH_INTERVAL_S = 0.001
# For programs that do not collect garbage by `garbage_collection`.
GC_THRESHOLDS = (50_000, 20, 100)

if "rich" not in sys.modules:
    # Python's import system reads this entry as: the module is not installed.
    sys.modules["rich"] = None  # type: ignore[assignment]
# gRPC's core reads this once, at import. Otherwise it writes its own lines to stderr. Everything
# that matters is reported as a status or an exception.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
gc.disable()


def finish_startup() -> None:
    """Excludes the imported objects, which are never freed, from garbage collection."""
    gc.freeze()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # A service makes many small objects and hardly any cycles, so most collections free nothing and
    # only pause it.
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def prepare_exit() -> None:
    """Excludes all remaining objects from garbage collection, because the process ends.

    Otherwise the collector would inspect all of them twice, which takes 0.3 s for a million
    objects.
    """
    gc.freeze()
