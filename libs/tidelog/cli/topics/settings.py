"""Parses a topic's settings. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from tidelog.errors import ErrorCode, TidelogError
from tidelog.units import parse_setting


def parse_settings(settings: Sequence[str], option: str = "--config") -> dict[str, str]:
    """Returns the settings as the cluster takes them: durations and sizes as numbers.

    >>> parse_settings(["retention_ms=7d", "segment_bytes = 65536"])
    {'retention_ms': '604800000', 'segment_bytes': '65536'}
    """
    parsed: dict[str, str] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key or not value:
            raise typer.BadParameter(
                f"{setting!r} is not KEY=VALUE, as in retention_ms=7d", param_hint=option
            )
        if key in parsed:
            raise typer.BadParameter(f"{key} is given twice; give it once", param_hint=option)
        try:
            parsed[key] = parse_setting(key, value)
        except ValueError as error:
            # The code of the other interfaces for such a value.
            raise TidelogError(ErrorCode.INVALID_CONFIG, f"{option} {key}: {error}") from None
    return parsed
