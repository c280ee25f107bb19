"""Whether this process is a forked child of the one in which an object was made."""

from __future__ import annotations

import os

# How often this process's ancestors were forked on the way to it. An object that was made under
# another number than the present one was inherited from the parent.
generation = 0


def _in_child() -> None:
    global generation
    generation += 1


os.register_at_fork(after_in_child=_in_child)
