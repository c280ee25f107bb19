"""Options whose values are durations and sizes (`tidelog.units`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from tidelog.units import (
    format_duration_ms,
    format_size_bytes,
    parse_duration_ms,
    parse_size_bytes,
)


def duration_option(
    *names: str,
    help_text: str,
    least_ms: int,
    most_ms: int,
    default: str = "",
    bare_unit_ms: int = 1,
) -> Any:
    """Returns an option whose value is a duration in milliseconds. `default`: as help shows it;
    empty: not at all."""

    def parse(given: str) -> int:
        return parse_duration_ms(given, bare_unit_ms)

    bounded = _bounded(parse, format_duration_ms, least_ms, most_ms)
    return _option(names, "DURATION", bounded, help_text, default)


def size_option(
    *names: str, help_text: str, least_bytes: int, most_bytes: int, default: str = ""
) -> Any:
    """Returns an option whose value is a size in bytes. `default`: as in `duration_option`."""

    bounded = _bounded(parse_size_bytes, format_size_bytes, least_bytes, most_bytes)
    return _option(names, "SIZE", bounded, help_text, default)


def _bounded(
    parse: Callable[[str], int], text_of: Callable[[int], str], least: int, most: int
) -> Callable[[Any], int]:
    def bounded(given: str | int) -> int:
        try:
            value = parse(str(given))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if not least <= value <= most:
            raise typer.BadParameter(
                f"{text_of(value)} is out of range; give {text_of(least)} to {text_of(most)}"
            )
        return value

    return bounded


def _option(
    names: tuple[str, ...],
    metavar: str,
    parse: Callable[[Any], int],
    help_text: str,
    default: str,
) -> Any:
    return typer.Option(
        *names, metavar=metavar, parser=parse, help=help_text, show_default=default or False
    )
