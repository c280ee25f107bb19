"""Detects that this process was stalled: stopped, swapped out or starved. Pure.

A process that was stalled knows nothing about that time, and least of all that others were silent
(rule `quiet-partition-reports-its-end`).
"""

from __future__ import annotations


def stalled_ms(elapsed_ms: int, expected_ms: int) -> int:
    """Returns how much longer something took than expected; 0: the process was merely busy.

    A process counts as stalled if the delay exceeds the expected time.
    """
    late_ms = elapsed_ms - expected_ms
    return late_ms if late_ms > expected_ms else 0
