"""Which Tidelog this is."""

from __future__ import annotations

import importlib.metadata

UNKNOWN = "unknown"


def installed_version() -> str:
    """As the package says; "unknown" where the sources run without being installed."""
    try:
        return importlib.metadata.version("tidelog")
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN
