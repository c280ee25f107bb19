"""Makes a service start quicker; a service's `__main__` imports it before all else.

Several services often start together on few cores, and what they wait for is their own
imports. Two things cost a third of these and bring a service nothing:

- structlog imports rich where it is installed, to draw tracebacks in colour;
- the garbage collector looks at everything that is being imported, again and again.
"""

from __future__ import annotations

import gc
import os
import sys

# A thread that works in Python keeps the event loop from running for so long each time the loop has
# waited: an answer takes the loop several turns. Python's own is 5 ms.
SWITCH_INTERVAL_S = 0.001
# For those who do not collect where they have time for it, by `garbage_collection`.
GC_THRESHOLDS = (50_000, 20, 100)

if "rich" not in sys.modules:
    # Read by Python's import system: the module counts as not installed.
    sys.modules["rich"] = None  # type: ignore[assignment]
# gRPC's core reads this once, at import, and would write its own lines to stderr; what
# matters comes as a status or an exception.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
gc.disable()


def imports_done() -> None:
    """What was imported stays for ever: the collector need not look at it again."""
    gc.freeze()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # A service makes many small objects and no cycles to speak of: each collection is a
    # pause for nothing.
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def process_ends() -> None:
    """What is left goes with the process: the collector would look at all of it twice more, which
    takes 0.3 s where a million objects are left."""
    gc.freeze()
