"""Options in seconds. The parser's own ranges let NaN pass."""

from __future__ import annotations

from collections.abc import Callable

import typer

LEAST_SECONDS = 0.1
# A month: no command waits longer, and all clocks can represent it.
MOST_SECONDS = 31 * 86_400.0


def seconds_up_to(most: float) -> Callable[[float | None], float | None]:
    """Returns a callback for an option that rejects times out of range."""

    def check(value: float | None) -> float | None:
        if value is not None and not LEAST_SECONDS <= value <= most:
            raise typer.BadParameter(
                f"{value:g} s cannot be waited; give {LEAST_SECONDS:g} to {most:.15g} seconds"
            )
        return value

    return check
