"""Options that all commands for changes share."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.exit_status import TimedOutError, UsageError
from tidelog.cli.session import Session
from tidelog.errors import TidelogError
from tidelog.request_bounds import MAX_REQUESTER_LENGTH, check_requester, check_timeout

if TYPE_CHECKING:
    from tidelog.client import Admin

REQUESTED_BY_VARIABLE = "TIDELOG_REQUESTED_BY"
MAX_REVISION = 2**63 - 1

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show exactly what would be done, and do nothing.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
OperationIdOption = Annotated[
    str,
    typer.Option(
        "--operation-id",
        metavar="ID",
        show_default=False,
        help="1 to 64 of a-z, A-Z, 0-9, _ and -. The same request by the same id is the same "
        "operation, so it can be repeated safely. Default: a new one.",
    ),
]
RequestedByOption = Annotated[
    str | None,
    typer.Option(
        "--requested-by",
        metavar="NAME",
        show_default=False,
        help=f"Who asks, kept in events and operations. Default: ${REQUESTED_BY_VARIABLE}, else "
        "you, at this machine.",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="How long to wait for the answer, at most 300. What has begun goes on after that.",
    ),
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Stay until it has ended, and show how far it is; Ctrl-C leaves it running.",
    ),
]
ExpectedRevisionOption = Annotated[
    int,
    typer.Option(
        "--expected-revision",
        metavar="N",
        min=0,
        max=MAX_REVISION,
        show_default=False,
        help="Refuse where somebody has changed it since it was described at this revision.",
    ),
]
ExpectedPlanOption = Annotated[
    str | None,
    typer.Option(
        "--expected-plan",
        metavar="DIGEST",
        show_default=False,
        help="Begin exactly the plan that a dry run showed with this digest, or refuse where it "
        "would be another one by now.",
    ),
]
USUAL_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Manner:
    """How a change is made.

    - `yes`: without confirmation.
    - `operation_id`: empty for a new one.
    - `expected_plan`: None to accept any plan.
    """

    dry_run: bool = False
    yes: bool = False
    operation_id: str = ""
    requested_by: str | None = None
    timeout_seconds: float = USUAL_TIMEOUT_SECONDS
    expected_plan: str | None = None

    @property
    def timeout_ms(self) -> int:
        return round(self.timeout_seconds * 1000)

    async def admin(self, session: Session) -> Admin:
        """Raises `UsageError` for an invalid requester or timeout."""
        self._check()
        requested_by = requester(self.requested_by, os.environ)
        return await session.admin(requested_by=requested_by, timeout_ms=self.timeout_ms)

    @asynccontextmanager
    async def asking(self, session: Session) -> AsyncIterator[Admin]:
        """For requests to brokers, which have no timeout of their own. Raises `TimedOutError`."""
        import asyncio

        self._check()
        try:
            async with asyncio.timeout(self.timeout_seconds), await session.admin() as admin:
                yield admin
        except TimeoutError as error:
            raise TimedOutError(
                f"there was no answer within {self.timeout_seconds:g} s; what is wrong: tidelog "
                "explain"
            ) from error

    def _check(self) -> None:
        try:
            check_timeout(self.timeout_seconds * 1000)
        except TidelogError as error:
            raise UsageError(error.message) from error
        # For example from a script whose variable is not set.
        if self.expected_plan == "":
            raise UsageError(
                "--expected-plan is empty; give the digest that --dry-run shows, or leave it out"
            )


def requester(given: str | None, environment: Mapping[str, str]) -> str:
    """Returns the name of the requester. Raises `UsageError`.

    >>> requester("ann", {}), requester(None, {"TIDELOG_REQUESTED_BY": "night shift"})
    ('ann', 'night shift')
    """
    said = given if given is not None else environment.get(REQUESTED_BY_VARIABLE)
    if said is None:
        return _login()
    source = REQUESTED_BY_VARIABLE if given is None else "--requested-by"
    try:
        check_requester(said, source)
    except TidelogError as error:
        raise UsageError(error.message) from error
    return said


def _login() -> str:
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A user id without a name.
        user = str(os.getuid())
    name = f"{user}@{os.uname().nodename}"
    return "".join(c for c in name if c.isascii() and c.isprintable())[:MAX_REQUESTER_LENGTH]
