"""Options that all commands for changes share."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from tidelog.cli.exit_status import ExitStatus, TimedOutError, UsageError
from tidelog.cli.session import (
    BootstrapOption,
    ContextOption,
    JsonOption,
    Session,
    session_of,
    unbounded_seconds_option,
)
from tidelog.errors import TidelogError
from tidelog.request_bounds import MAX_REQUESTER_LENGTH, check_requester, check_timeout

if TYPE_CHECKING:
    from tidelog.client import Admin

_Running = Coroutine[Any, Any, ExitStatus | None]

REQUESTED_BY_VARIABLE = "TIDELOG_REQUESTED_BY"
MAX_REVISION = 2**63 - 1
DEFAULT_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class MutationOptions:
    """Options of commands that change a cluster, or describe it. `shared_options` adds them to
    commands, in this order.

    - `operation_id`: empty for a new one.
    - `expected_plan`: None to accept any plan.
    - `expected_revision`: 0 to accept any revision.
    """

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show exactly what would be done, and do nothing.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            help="Show the progress until it has ended; Ctrl-C leaves it running.",
        ),
    ] = False
    operation_id: Annotated[
        str,
        typer.Option(
            "--operation-id",
            metavar="ID",
            show_default=False,
            help="1 to 64 of a-z, A-Z, 0-9, _ and -. The same request by the same id is the same "
            "operation, so it can be repeated safely. Default: a new one.",
        ),
    ] = ""
    expected_plan: Annotated[
        str | None,
        typer.Option(
            "--expected-plan",
            metavar="DIGEST",
            show_default=False,
            help="Begin exactly the plan that a dry run showed with this digest. Rejected if the "
            "plan has changed.",
        ),
    ] = None
    requested_by: Annotated[
        str | None,
        typer.Option(
            "--requested-by",
            metavar="NAME",
            show_default=False,
            help="Name of the requester, kept in events and operations. Default: "
            f"${REQUESTED_BY_VARIABLE}, else user@host.",
        ),
    ] = None
    expected_revision: Annotated[
        int,
        typer.Option(
            "--expected-revision",
            metavar="N",
            min=0,
            max=MAX_REVISION,
            show_default=False,
            help="Reject the change if the revision is not this one.",
        ),
    ] = 0
    timeout_seconds: Annotated[
        float,
        unbounded_seconds_option(
            "--timeout",
            "How long to wait for the answer, as 10s, at most 5m. A change that has begun "
            "continues.",
            DEFAULT_TIMEOUT_SECONDS,
        ),
    ] = DEFAULT_TIMEOUT_SECONDS

    @property
    def timeout_ms(self) -> int:
        return round(self.timeout_seconds * 1000)

    async def admin(self, session: Session) -> Admin:
        """Raises `UsageError` for an invalid requester or timeout."""
        self._check()
        requested_by = requester(self.requested_by, os.environ)
        return await session.admin(requested_by=requested_by, timeout_ms=self.timeout_ms)

    @asynccontextmanager
    async def broker_admin(self, session: Session) -> AsyncIterator[Admin]:
        """For requests to brokers, which have no timeout of their own. Raises `TimedOutError`."""
        import asyncio

        self._check()
        try:
            async with asyncio.timeout(self.timeout_seconds), await session.admin() as admin:
                yield admin
        except TimeoutError as error:
            raise TimedOutError(
                f"no answer within {self.timeout_seconds:g} s; find the cause with: tidelog explain"
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


def shared_options(
    *names: str, streams: bool = False, when_interrupted: ExitStatus = ExitStatus.INTERRUPTED
) -> Callable[[Callable[..., _Running]], Callable[..., None]]:
    """Turns a coroutine function into a command, with these fields of `MutationOptions` as options
    after its own ones, and those of the session after them.

    The function takes a `Session`, `MutationOptions` if it has such options, and its own
    parameters. It returns the exit status; None means done. `Session.run` describes the keywords.
    """
    types = get_type_hints(MutationOptions, include_extras=True)
    added = [
        _parameter(field.name, types[field.name], field.default)
        for field in fields(MutationOptions)
        if field.name in names
    ]

    def decorate(work: Callable[..., _Running]) -> Callable[..., None]:
        @functools.wraps(work)
        def run(context: typer.Context, **values: Any) -> None:
            session = session_of(
                context,
                values.pop("bootstrap"),
                values.pop("as_json"),
                values.pop("context_name"),
            )
            options = MutationOptions(**{name: values.pop(name) for name in names})
            shared = (session, options) if names else (session,)
            session.run(
                lambda: work(*shared, **values), when_interrupted=when_interrupted, streams=streams
            )

        own = [*inspect.signature(work, eval_str=True).parameters.values()][2 if names else 1 :]
        parameters = [
            _parameter("context", typer.Context),
            *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
            *added,
            _parameter("bootstrap", BootstrapOption, None),
            _parameter("context_name", ContextOption, None),
            _parameter("as_json", JsonOption, False),
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _parameter(
    name: str, kind: Any, default: object = inspect.Parameter.empty
) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


operation_options = shared_options(
    "dry_run", "yes", "watch", "operation_id", "expected_plan", "requested_by", "timeout_seconds"
)


def requester(given: str | None, environment: Mapping[str, str]) -> str:
    """Returns the name of the requester. Raises `UsageError`.

    >>> requester("ann", {}), requester(None, {"TIDELOG_REQUESTED_BY": "night shift"})
    ('ann', 'night shift')
    """
    name = given if given is not None else environment.get(REQUESTED_BY_VARIABLE)
    if name is None:
        return _login()
    source = REQUESTED_BY_VARIABLE if given is None else "--requested-by"
    try:
        check_requester(name, source)
    except TidelogError as error:
        raise UsageError(error.message) from error
    return name


def _login() -> str:
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A user id without a name.
        user = str(os.getuid())
    name = f"{user}@{os.uname().nodename}"
    return "".join(c for c in name if c.isascii() and c.isprintable())[:MAX_REQUESTER_LENGTH]
