"""Times in seconds, as options say them. The parser's own ranges let through what is no number."""

from __future__ import annotations

from collections.abc import Callable

import typer

LEAST_SECONDS = 0.1
# A month: nobody waits for longer in one go, and every clock below holds it.
MOST_SECONDS = 31 * 86_400.0


def seconds_up_to(most: float) -> Callable[[float | None], float | None]:
    """A callback of an option. Its refusal says what would be right."""

    def check(value: float | None) -> float | None:
        if value is not None and not LEAST_SECONDS <= value <= most:
            raise typer.BadParameter(
                f"{value:g} s cannot be waited; give {LEAST_SECONDS:g} to {most:.15g} seconds"
            )
        return value

    return check
