"""The version of Tidelog. It stands here alone: the build of each distribution reads it."""

from __future__ import annotations

__version__ = "0.2.0"


def installed_version() -> str:
    return __version__
