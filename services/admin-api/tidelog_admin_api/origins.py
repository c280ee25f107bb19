"""Checks the Host of requests, and from which pages browsers may send them.

Any page can make a browser send requests to a gateway on loopback. Cross-origin requests have
the headers Origin and Sec-Fetch-Site. With DNS rebinding, a foreign name resolves to the
gateway's address. Requests of its pages are then same-origin, and only Host shows the foreign
name. Programs other than browsers send neither Origin nor Sec-Fetch-Site.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from tidelog_admin_api.error_mappings import ErrorMapping
from tidelog_admin_api.problems import ProblemError

READS = frozenset({"GET", "HEAD", "OPTIONS"})
# Load balancers use other names. The answer has no data of topics.
ANY_HOST_PATHS = frozenset({"/ready"})


def check_browser(method: str, path: str, headers: Mapping[str, str], hosts: Set[str]) -> None:
    """Checks Host, Origin and Sec-Fetch-Site. Raises `ProblemError`.

    - `headers`: headers by their names in lower case
    - `hosts`: names of the gateway in lower case
    """
    host = headers.get("host", "")
    if path not in ANY_HOST_PATHS:
        _check_host(host, hosts)
    origin = headers.get("origin")
    if origin is not None:
        if not _is_own_page(origin, host, hosts, is_read=method in READS):
            raise _foreign(f"a page of {origin[:200]}")
    elif headers.get("sec-fetch-site") == "cross-site":
        is_link = method in READS and headers.get("sec-fetch-mode") == "navigate"
        if not is_link:
            raise _foreign("a page of another site")


def _check_host(host: str, hosts: Set[str]) -> None:
    """Rejects foreign names. A name without a dot is local: no foreign DNS zone contains it."""
    name = _name_of(host)
    if not host or (name and ("." not in name or _is_own(name, hosts))):
        return
    raise ProblemError(
        "UNKNOWN_HOST",
        ErrorMapping(
            HTTPStatus.MISDIRECTED_REQUEST,
            "PERMISSION_DENIED",
            "Use an IP address of the gateway, or add the host to allowed_hosts of the gateway.",
        ),
        f"host {host[:200]} is not a known name of the gateway: the owner of an unknown name could "
        "read the answers through a browser",
    )


def _is_own_page(origin: str, host: str, hosts: Set[str], *, is_read: bool) -> bool:
    """Whether the origin belongs to the gateway. For reads it is enough that it equals the host."""
    try:
        parts = urlsplit(origin)
        if not parts.netloc or parts.netloc.lower() != host.lower():
            return False
        return is_read or _is_own(parts.hostname or "", hosts)
    except ValueError:
        return False


def _name_of(host: str) -> str:
    """Returns the host without its port, or an empty string if it is invalid."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_own(name: str, hosts: Set[str]) -> bool:
    if name in hosts:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    # An IP address is not resolved, so DNS rebinding is impossible.
    return True


def _foreign(source: str) -> ProblemError:
    return ProblemError(
        "FOREIGN_ORIGIN",
        ErrorMapping(
            HTTPStatus.FORBIDDEN,
            "PERMISSION_DENIED",
            "Open the console at an IP address of the gateway, or add its host to allowed_hosts of "
            "the gateway. A proxy in front of the gateway must pass on the Host header.",
        ),
        f"the request comes from {source}, which is not a known origin of the gateway; pages of "
        "other origins may not send requests",
    )
