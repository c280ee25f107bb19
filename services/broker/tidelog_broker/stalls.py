"""Whether this process stood still: stopped, swapped out or starved. Who did knows nothing of
the time meanwhile, and least of all that others were silent (interleaving 14 of
docs/internals/interleavings.md). Pure."""

from __future__ import annotations


def stalled_ms(elapsed_ms: int, expected_ms: int) -> int:
    """How much longer something took than it takes at the most in a process that runs; 0: so
    little that this one was merely busy."""
    late_ms = elapsed_ms - expected_ms
    return late_ms if late_ms > expected_ms else 0
