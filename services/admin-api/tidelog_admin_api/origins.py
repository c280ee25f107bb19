"""Checks by which host names the gateway is addressed, and which pages may send requests.

A browser reaches a gateway on loopback on behalf of any page that it shows. Cross-origin
requests of a page carry Origin and Sec-Fetch-Site. With DNS rebinding, the page's own name
resolves to the gateway's address. Its requests are then same-origin, and only the Host header
shows the foreign name. Programs other than browsers send neither header; only their Host is
checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog_admin_api.error_mappings import ErrorMapping
from tidelog_admin_api.problems import ProblemError

READS = frozenset({"GET", "HEAD", "OPTIONS"})
# Load balancers use names of their own, and the answer has no record and no topic's name.
ASKED_BY_ANY_NAME = frozenset({"/ready"})
# Sent with every answer: browsers do not guess the media type, and other sites cannot embed it.
ANSWER_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def check_browser(method: str, path: str, headers: Mapping[str, str], hosts: Set[str]) -> None:
    """Checks Host, Origin and Sec-Fetch-Site. Raises `ProblemError`.

    - `headers`: by names in lower case
    - `hosts`: the gateway's own names, in lower case
    """
    asked = headers.get("host", "")
    if path not in ASKED_BY_ANY_NAME:
        _check_host(asked, hosts)
    origin = headers.get("origin")
    if origin is not None:
        if not _is_own_page(origin, asked, hosts, is_read=method in READS):
            raise _foreign(f"a page of {origin[:200]}")
    elif headers.get("sec-fetch-site") == "cross-site":
        is_link = method in READS and headers.get("sec-fetch-mode") == "navigate"
        if not is_link:
            raise _foreign("a page of another site")


def _check_host(asked: str, hosts: Set[str]) -> None:
    """Rejects foreign names. A name without a dot is local: no outsider can make it resolve."""
    name = _name_of(asked)
    if not asked or (name and ("." not in name or _is_own(name, hosts))):
        return
    raise ProblemError(
        "UNKNOWN_HOST",
        ErrorMapping(
            HTTPStatus.MISDIRECTED_REQUEST,
            "PERMISSION_DENIED",
            "Ask by an address of the gateway, or name the host in allowed_hosts of the gateway.",
        ),
        f"the gateway is asked as {asked[:200]}, a name that it does not know as its own: whoever "
        "owns that name could read what it answers through a browser",
    )


def _is_own_page(origin: str, asked: str, hosts: Set[str], *, is_read: bool) -> bool:
    """Whether the origin is the gateway's own. Reads need no more than the host checked before."""
    try:
        parts = urlsplit(origin)
        if not parts.netloc or parts.netloc.lower() != asked.lower():
            return False
        return is_read or _is_own(parts.hostname or "", hosts)
    except ValueError:
        return False


def _name_of(asked: str) -> str:
    """Returns the host without its port, or an empty string if there is none."""
    try:
        return (urlsplit(f"//{asked}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_own(name: str, hosts: Set[str]) -> bool:
    if name in hosts:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    # An address is not resolved, so that no outsider can rebind it.
    return True


def _foreign(whose: str) -> ProblemError:
    return ProblemError(
        "FOREIGN_ORIGIN",
        ErrorMapping(
            HTTPStatus.FORBIDDEN,
            "PERMISSION_DENIED",
            "Open the console by an address of the gateway, or name its host in allowed_hosts of "
            "the gateway; a proxy before it has to pass on the Host header.",
        ),
        f"the request comes from {whose}, which is not known to be the gateway's own: other pages "
        "may not ask it anything",
    )


class SecurityHeadersMiddleware:
    """Middleware that adds ANSWER_HEADERS to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in ANSWER_HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, sealed)
