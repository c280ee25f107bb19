"""Finds the shortest list of faults with which a seed still fails: delta debugging (Zeller).

Pure: `fails` runs a seed with a plan, and returns whether the same invariant is violated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

# Each run takes about as long as the seed did.
MAX_RUNS = 200

Fault = TypeVar("Fault")


class _OutOfRunsError(Exception):
    pass


def shrink(
    plan: Sequence[Fault], fails: Callable[[list[Fault]], bool], max_runs: int = MAX_RUNS
) -> list[Fault]:
    """Returns a sublist of `plan`, in its order, that still fails.

    Without any one of its faults it does not fail, unless `max_runs` ended the search. `plan`
    itself is known to fail.
    """
    runs = 0

    def counted(candidate: list[Fault]) -> bool:
        nonlocal runs
        if runs == max_runs:
            raise _OutOfRunsError
        runs += 1
        return fails(candidate)

    shortest = list(plan)
    try:
        if shortest and counted([]):
            return []
        pieces = 2
        while len(shortest) >= 2:
            size = -(-len(shortest) // pieces)
            starts = range(0, len(shortest), size)
            for start in starts:
                candidate = shortest[:start] + shortest[start + size :]
                if counted(candidate):
                    shortest = candidate
                    pieces = max(pieces - 1, 2)
                    break
            else:
                if size == 1:
                    break
                pieces = min(2 * pieces, len(shortest))
    except _OutOfRunsError:
        pass
    return shortest
