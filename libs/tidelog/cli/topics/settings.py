"""Parses a topic's settings, and describes the risks of changes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tidelog.admin_messages import ConfigChange

_UNLIMITED = -1


def parse_settings(settings: Sequence[str], option: str = "--config") -> dict[str, str]:
    """
    >>> parse_settings(["retention_ms=1000", "segment_bytes = 65536"])
    {'retention_ms': '1000', 'segment_bytes': '65536'}
    """
    parsed: dict[str, str] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key or not value:
            raise typer.BadParameter(
                f"{setting!r} is not KEY=VALUE, as in retention_ms=86400000", param_hint=option
            )
        if key in parsed:
            raise typer.BadParameter(f"{key} is given twice; give it once", param_hint=option)
        parsed[key] = value
    return parsed


def dangers(changes: Sequence[ConfigChange]) -> Iterator[str]:
    """Yields a sentence for each change by which records may be lost."""
    for change in changes:
        before, after = change.before, change.after
        match change.key:
            case "retention_ms" | "retention_bytes" if _is_less(before, after):
                yield f"Records beyond {change.key}={after} will be deleted for good, shortly."
            case "min_insync_replicas" if _min_isr(after) < _min_isr(before):
                yield (
                    f"With min_insync_replicas={after or 'its default'} records may count as "
                    "acknowledged that fewer replicas hold than before."
                )
            case "unclean_leader_election" if after == "true":
                yield (
                    "A replica that lacks acknowledged records may be elected from now on, while "
                    "no replica in sync is available: these records are lost then."
                )
            case "durability" if after == "replicated":
                yield (
                    "Records are acknowledged from now on before they are synced to disk: a power "
                    "failure of all their replicas at once may lose them."
                )
            case "recovery" if after == "balanced":
                yield (
                    "If every replica that was in sync has lost data, the best of them is elected "
                    "without consent."
                )


def _min_isr(text: str) -> int:
    """The default is min(2, replication factor)."""
    return int(text or 2)


def _is_less(before: str, after: str) -> bool:
    """Whether less is retained than before."""
    if int(after) == _UNLIMITED:
        return False
    return int(before) == _UNLIMITED or int(after) < int(before)
