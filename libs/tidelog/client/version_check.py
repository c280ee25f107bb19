"""Compares the release of this client with those of the services, and warns once."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidelog.feature_levels import MAX_RELEASES_APART, releases_apart
from tidelog.version import installed_version

_log = logging.getLogger(__name__)


class VersionCheck:
    """Warns about the first service whose release is too far from that of this client."""

    def __init__(self, own: str = "") -> None:
        """`own`: the client's version; empty: the installed one."""
        self._own = own or installed_version()
        self._has_warned = False

    def compare(self, versions: Mapping[str, str]) -> None:
        """`versions`: of the services, by address."""
        if self._has_warned:
            return
        for address, version in versions.items():
            apart = releases_apart(self._own, version)
            if apart is not None and apart > MAX_RELEASES_APART:
                self._has_warned = True
                _log.warning(
                    "this client is of release %s, and the service at %s of release %s; they work "
                    "together only over one minor release: upgrade the older one, see "
                    "docs/reference/versions.md",
                    self._own,
                    address,
                    version,
                )
                return
