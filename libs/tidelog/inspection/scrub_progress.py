"""The progress of a broker's scrub."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """The fields of `ScrubStatus` in scrub.proto. Times are milliseconds since 1970; 0: never."""

    enabled: bool
    running: bool
    full_rate: bool
    total_bytes: int
    pass_began_ms: int
    pass_bytes: int
    passes: int
    last_pass_began_ms: int
    last_pass_ended_ms: int
    last_pass_bytes: int
    bytes_checked: int
    damage_found: int
    diverged_ranges: int
