"""The environment of commands: the cluster, the terminal, and the exit status of errors.

Tests pass a `Session` as the context's `obj`, with connections to a cluster of their own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.connection import Bootstrap, check_any_listens, find_bootstrap
from tidelog.cli.exit_status import (
    ClusterUnreachableError,
    ExitStatus,
    TimedOutError,
    UsageError,
    status_of,
)
from tidelog.cli.json_errors import json_error
from tidelog.cli.lines import parse_separator
from tidelog.cli.output import write_error, write_json
from tidelog.cli.streams import stop_writing
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.client import Admin, Consumer, Producer
    from tidelog.client.connections import Connections
    from tidelog.client.service_states import ReportedStates
    from tidelog.inspection.gateway_reports import AnnouncedGateway
    from tidelog.inspection.model import StateRequest

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT,…",
        show_default=False,
        help="Brokers to connect to first. Default: $TIDELOG_BOOTSTRAP, else the local cluster's "
        ".tidelog/cluster.json here or above, else the default ports of this machine.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of text, also for errors.")
]

LEAST_SECONDS = 0.1
# A month: no command waits longer, and all clocks can represent it.
MOST_SECONDS = 31 * 86_400.0
# Timeout of the request to each controller; the requests run in parallel.
FIND_GATEWAYS_MS = 1_000
_EXPECTED = (TidelogError, UsageError, ClusterUnreachableError, TimedOutError, OSError)


@dataclass(frozen=True, slots=True)
class Session:
    """The settings that all commands share.

    - `connections`: None outside of tests; each client opens its own.
    - `interactive`: whether the command may ask for confirmation. None: if stdin is a terminal.
    """

    bootstrap: str | None = None
    as_json: bool = False
    connections: Connections | None = None
    interactive: bool | None = None

    def found_bootstrap(self) -> Bootstrap:
        return find_bootstrap(self.bootstrap, os.environ, Path.cwd())

    def can_prompt(self) -> bool:
        return sys.stdin.isatty() if self.interactive is None else self.interactive

    async def reach(self) -> str:
        """Returns the addresses once one of them accepts a connection. Raises `UsageError` and
        `ClusterUnreachableError`."""
        bootstrap = self.found_bootstrap()
        _addresses_in(bootstrap)
        if self.connections is None:
            await check_any_listens(bootstrap)
        return bootstrap.addresses

    def service_addresses(self) -> list[str]:
        """Returns the known addresses of brokers and controllers, whether they listen or not.
        Raises `UsageError`."""
        bootstrap = self.found_bootstrap()
        named = (address for _, _, address in bootstrap.services)
        return list(dict.fromkeys((*_addresses_in(bootstrap), *named)))

    async def service_states(self, request: StateRequest) -> ReportedStates:
        """Returns the states of all services, and which of them do not answer."""
        from tidelog.client.clock import SystemClock
        from tidelog.client.service_states import ServiceStates

        return await ServiceStates(self.service_addresses(), SystemClock()).ask(request)

    async def gateways(self, controllers: Iterable[str]) -> list[AnnouncedGateway]:
        """Returns the gateways that the controllers at these addresses report in time."""
        from tidelog.client.connections import GrpcConnections
        from tidelog.client.gateway_probe import find_gateways

        connections = GrpcConnections()
        try:
            return await find_gateways(controllers, connections, FIND_GATEWAYS_MS)
        finally:
            await connections.close()

    def known_services(self) -> dict[str, tuple[str, int]]:
        """Returns role and id by address, from the cluster file."""
        return {address: (role, id_) for role, id_, address in self.found_bootstrap().services}

    async def admin(self, **settings: Any) -> Admin:
        from tidelog.client import Admin

        return Admin(await self.reach(), connections=self.connections, **settings)

    async def producer(self, **settings: Any) -> Producer:
        from tidelog.client import Producer

        return Producer(await self.reach(), connections=self.connections, **settings)

    async def consumer(self, **settings: Any) -> Consumer:
        from tidelog.client import Consumer

        return Consumer(await self.reach(), connections=self.connections, **settings)

    def run(
        self,
        work: Callable[[], Coroutine[Any, Any, ExitStatus | None]],
        *,
        when_interrupted: ExitStatus = ExitStatus.INTERRUPTED,
        streams: bool = False,
    ) -> None:
        """Runs a command and exits with its status.

        `streams`: the command writes one document a line, among which an error document would be
        mistaken for data.
        """
        import asyncio

        with ending_with_a_status(when_interrupted, as_json=self.as_json and not streams):
            status = asyncio.run(work())
        if status:
            raise typer.Exit(status)


def _addresses_in(bootstrap: Bootstrap) -> list[str]:
    from tidelog.client.cluster_metadata import parse_bootstrap

    try:
        return parse_bootstrap(bootstrap.addresses)
    except TidelogError as error:
        raise UsageError(f"{error} (from {bootstrap.source})") from error


def session_of(
    context: typer.Context, bootstrap: str | None = None, as_json: bool = False
) -> Session:
    """Returns the session. Options of the command override those before the command."""
    session = context.obj if isinstance(context.obj, Session) else Session()
    return replace(
        session,
        bootstrap=bootstrap or session.bootstrap,
        as_json=as_json or session.as_json,
    )


def seconds_option(name: str, help_text: str, most: float = MOST_SECONDS) -> Any:
    """Returns an option that rejects times out of range. The parser's own ranges let NaN pass."""

    def check(value: float | None) -> float | None:
        if value is not None and not LEAST_SECONDS <= value <= most:
            raise typer.BadParameter(
                f"{value:g} s is out of range; give {LEAST_SECONDS:g} to {most:.15g} seconds"
            )
        return value

    return typer.Option(name, metavar="SECONDS", callback=check, help=help_text)


def key_separator_option(help_text: str) -> Any:
    return typer.Option("--key-separator", "-k", show_default=False, help=help_text)


def separator_from(option: str | None) -> bytes | None:
    """Returns the bytes of `--key-separator`. An empty one is a usage error."""
    if option is None:
        return None
    try:
        return parse_separator(option)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--key-separator") from error


@contextmanager
def ending_with_a_status(
    when_interrupted: ExitStatus = ExitStatus.INTERRUPTED, *, as_json: bool = False
) -> Iterator[None]:
    """Turns errors that a user can fix into a message and `typer.Exit`; with `as_json` also into a
    document."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(when_interrupted) from None
    except BrokenPipeError:
        stop_writing()
        raise typer.Exit(ExitStatus.DONE) from None
    except Exception as error:
        status = status_of(error)
        # Other errors are faults of tidelog. UnreachableError is recognized by its status, because
        # importing it would import gRPC.
        if not isinstance(error, _EXPECTED) and status is not ExitStatus.UNREACHABLE:
            raise
        write_error(str(error))
        if as_json:
            write_json(json_error(error))
        raise typer.Exit(status) from error
