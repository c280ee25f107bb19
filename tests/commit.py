"""The commit that a checker's report is about."""

from __future__ import annotations

import subprocess
from pathlib import Path

UNKNOWN = "unknown"
GIT_TIMEOUT_S = 30


def checked_out_commit() -> str:
    """The short hash of the checked-out commit, with "-dirty" where files differ from it.

    UNKNOWN outside a repository."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN
