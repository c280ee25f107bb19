"""By which names the gateway may be asked, and which pages may ask it.

A browser lends its reach to every page that it shows, also to a gateway on loopback. What a page
sends across origins tells of itself by Origin and Sec-Fetch-Site. A page whose own name has been
pointed at the gateway's address (DNS rebinding) tells of nothing, because it is of one origin
with what it asks: the name by which it asks gives it away. Programs that are no browsers send
neither header, and are held up by the name alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog_admin_api.meanings import Meaning
from tidelog_admin_api.problems import ProblemError

READS = frozenset({"GET", "HEAD", "OPTIONS"})
# Balancers ask by names of their own, and no record or name of a topic is in the answer.
ASKED_BY_ANY_NAME = frozenset({"/ready"})
# Told with every answer: that it is what it says, and that other pages may not embed it.
ANSWER_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def check_browser(method: str, path: str, headers: Mapping[str, str], hosts: Set[str]) -> None:
    """`headers`: by names in lower case. `hosts`: names that are the gateway's own, in lower
    case. Raises `ProblemError`."""
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
    """A name without a dot is one of the network's own: nobody else can have it resolved."""
    name = _name_of(asked)
    if not asked or (name and ("." not in name or _is_own(name, hosts))):
        return
    raise ProblemError(
        "UNKNOWN_HOST",
        Meaning(
            HTTPStatus.MISDIRECTED_REQUEST,
            "PERMISSION_DENIED",
            "Ask by an address of the gateway, or name the host in allowed_hosts of the gateway.",
        ),
        f"the gateway is asked as {asked[:200]}, a name that it does not know as its own: whoever "
        "owns that name could read what it answers through a browser",
    )


def _is_own_page(origin: str, asked: str, hosts: Set[str], *, is_read: bool) -> bool:
    """What only reads has been let in by its host's name already."""
    try:
        parts = urlsplit(origin)
        if not parts.netloc or parts.netloc.lower() != asked.lower():
            return False
        return is_read or _is_own(parts.hostname or "", hosts)
    except ValueError:
        return False


def _name_of(asked: str) -> str:
    """Without its port; empty: there is none."""
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
    # Nobody else can give this address another number.
    return True


def _foreign(whose: str) -> ProblemError:
    return ProblemError(
        "FOREIGN_ORIGIN",
        Meaning(
            HTTPStatus.FORBIDDEN,
            "PERMISSION_DENIED",
            "Open the console by an address of the gateway, or name its host in allowed_hosts of "
            "the gateway; a proxy before it has to pass on the Host header.",
        ),
        f"the request comes from {whose}, which is not known to be the gateway's own: other pages "
        "may not ask it anything",
    )


class Sealed:
    """Middleware. Every answer has ANSWER_HEADERS."""

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
