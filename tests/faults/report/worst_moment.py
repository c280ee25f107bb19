"""What the services said around the worst gap of all runs: its trace. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

# Before the gap's begin and after its end.
MARGIN_S = 0.5
MAX_LINES = 400
# What every line has, or what says too little beside the rest.
_COMMON = frozenset({"time", "level", "service", "event", "kind"})


class Said(NamedTuple):
    """`at_s`: wall clock, seconds since 1970."""

    at_s: float
    service: str
    what: str
    details: Mapping[str, Any]


def said_between(
    logs: Mapping[str, Iterable[bytes]], begin_s: float, end_s: float
) -> tuple[list[Said], int]:
    """Of all services in the order of their clocks, and how many lines more there are."""
    found: list[Said] = []
    for service, lines in logs.items():
        for line in lines:
            said = _parse(service, line)
            if said is not None and begin_s - MARGIN_S <= said.at_s <= end_s + MARGIN_S:
                found.append(said)
    found.sort(key=lambda said: said.at_s)
    return found[:MAX_LINES], max(0, len(found) - MAX_LINES)


def _parse(service: str, line: bytes) -> Said | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    try:
        at_s = datetime.fromisoformat(str(fields.get("time"))).timestamp()
    except ValueError:
        return None
    what = str(fields.get("kind") or fields.get("event") or "")
    details = {name: value for name, value in fields.items() if name not in _COMMON}
    return Said(at_s, service, what, details)
