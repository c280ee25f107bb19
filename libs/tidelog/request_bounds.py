"""How long a request may wait, how much a page may hold, and who may be said to ask: refused alike
by the controller, the gateway, the client and the commands. Pure."""

from __future__ import annotations

from tidelog.errors import ErrorCode, TidelogError

MAX_TIMEOUT_MS = 300_000
DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1_000
MAX_REQUESTER_LENGTH = 200
# The intent that keeps the replicas chosen by hand is one value of the metadata store.
MAX_ASSIGNED_PARTITIONS = 1_000


def check_timeout(timeout_ms: float) -> None:
    """Raises INVALID_REQUEST."""
    if not 1 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"a timeout of {timeout_ms:.15g} ms cannot be; ask for 1 to {MAX_TIMEOUT_MS} ms",
        )


def page_size(asked: int) -> int:
    """More than the most counts as the most (google AIP-158); 0: not said. Raises
    INVALID_REQUEST.

    >>> page_size(0), page_size(7), page_size(5_000)
    (100, 7, 1000)
    """
    if asked < 0:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"a page size of {asked} cannot be; ask for 1 to {MAX_PAGE_SIZE}, or leave it out",
        )
    return min(asked, MAX_PAGE_SIZE) or DEFAULT_PAGE_SIZE


def check_requester(name: str, said_as: str = "requested_by") -> None:
    """`said_as`: where it was said. Raises INVALID_REQUEST for what gRPC's metadata cannot carry,
    or no line of a log should hold."""
    if len(name) > MAX_REQUESTER_LENGTH or not (name.isascii() and name.isprintable()):
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{said_as} {name[:40]!r} cannot be sent; give at most {MAX_REQUESTER_LENGTH} "
            "printable characters of ASCII",
        )
