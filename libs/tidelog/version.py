"""The installed version of Tidelog."""

from __future__ import annotations

import importlib.metadata

UNKNOWN = "unknown"


def installed_version() -> str:
    """Returns the version of the installed package, or "unknown" if it is not installed."""
    try:
        return importlib.metadata.version("tidelog")
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN
