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
from tidelog.cli.contexts import contexts_path, load_contexts
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
from tidelog.units import format_duration_ms, parse_duration_ms

if TYPE_CHECKING:
    from tidelog.client import Admin, Consumer, Producer
    from tidelog.client.connections import Connections
    from tidelog.client.service_states import ReportedStates
    from tidelog.inspection.gateway_reports import AnnouncedGateway
    from tidelog.inspection.state_reports import StateRequest

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT,…",
        show_default=False,
        help="Brokers to connect to first. Default: those of --context, else $TIDELOG_BOOTSTRAP, "
        "else the context $TIDELOG_CONTEXT or the current one, else the local cluster's "
        ".tidelog/cluster.json here or above, else the default ports of this machine.",
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        show_default=False,
        help="Context with the addresses of the cluster (tidelog context list).",
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
# Time that each service has to describe itself.
STATES_TIMEOUT_MS = 2_000
_EXPECTED = (TidelogError, UsageError, ClusterUnreachableError, TimedOutError, OSError)


@dataclass(frozen=True, slots=True)
class Session:
    """The settings that all commands share.

    - `context`: the name that --context gives.
    - `connections`: None outside of tests; each client opens its own.
    - `interactive`: whether the command may ask for confirmation. None: if stdin is a terminal.
    """

    bootstrap: str | None = None
    context: str | None = None
    as_json: bool = False
    connections: Connections | None = None
    interactive: bool | None = None

    def found_bootstrap(self) -> Bootstrap:
        return find_bootstrap(
            self.bootstrap,
            os.environ,
            Path.cwd(),
            self.context,
            lambda: load_contexts(contexts_path()),
        )

    def source_of_addresses(self) -> str:
        """Returns what names the addresses of brokers; "" if that is invalid."""
        try:
            return self.found_bootstrap().source
        except UsageError:
            return ""

    def protected_context(self) -> str:
        """Returns the name of the protected context that applies although the command line does not
        name it; "" if there is none."""
        found = self.found_bootstrap()
        is_protected = found.context is not None and found.context.protected
        return found.context_name if is_protected and not found.is_named else ""

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
        return list(dict.fromkeys((*_addresses_in(bootstrap), *bootstrap.known_addresses())))

    async def service_states(
        self, request: StateRequest, timeout_ms: int = STATES_TIMEOUT_MS
    ) -> ReportedStates:
        """Returns the states of all services, and which of them do not answer in time."""
        from tidelog.client.clock import SystemClock
        from tidelog.client.service_states import ServiceStates

        states = ServiceStates(self.service_addresses(), SystemClock())
        return await states.ask(request, timeout_ms)

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

        with ending_with_a_status(
            when_interrupted, as_json=self.as_json and not streams, source=self.source_of_addresses
        ):
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
    context: typer.Context,
    bootstrap: str | None = None,
    as_json: bool = False,
    context_name: str | None = None,
) -> Session:
    """Returns the session. Options of the command override those before the command."""
    session = context.obj if isinstance(context.obj, Session) else Session()
    return replace(
        session,
        bootstrap=bootstrap or session.bootstrap,
        context=session.context if context_name is None else context_name,
        as_json=as_json or session.as_json,
    )


def seconds_option(
    name: str, help_text: str, most: float = MOST_SECONDS, default: float | None = None
) -> Any:
    """Returns an option for a duration, in seconds if it has no unit. The parser's own ranges let
    NaN pass. `default`: as help shows it; None: not at all."""

    def parse(given: str | float) -> float:
        try:
            seconds = parse_duration_ms(str(given), bare_unit_ms=1_000) / 1_000
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if not LEAST_SECONDS <= seconds <= most:
            raise typer.BadParameter(
                f"{seconds:g} s is out of range; give {LEAST_SECONDS:g} to {most:.15g} seconds"
            )
        return seconds

    return _seconds_option(name, parse, help_text, default)


def unbounded_seconds_option(name: str, help_text: str, default: float) -> Any:
    """Returns an option as `seconds_option` does, whose range the command checks. A number without
    a unit may be any that Python reads."""

    def parse(given: str | float) -> float:
        try:
            return float(given)
        except ValueError:
            pass
        try:
            return parse_duration_ms(str(given)) / 1_000
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return _seconds_option(name, parse, help_text, default)


def _seconds_option(
    name: str, parse: Callable[[Any], float], help_text: str, default: float | None
) -> Any:
    shown = False if default is None else format_duration_ms(round(1_000 * default))
    return typer.Option(name, metavar="DURATION", parser=parse, help=help_text, show_default=shown)


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
    when_interrupted: ExitStatus = ExitStatus.INTERRUPTED,
    *,
    as_json: bool = False,
    source: Callable[[], str] = str,
) -> Iterator[None]:
    """Turns errors that a user can fix into a message and `typer.Exit`; with `as_json` also into a
    document. `source`: what names the addresses, which the error of a cluster that cannot be
    reached includes."""
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
        message = str(error)
        named = source() if status is ExitStatus.UNREACHABLE else ""
        if named not in message:
            message = f"{message} (the addresses are from {named})"
        write_error(message)
        if as_json:
            write_json(json_error(error, message))
        raise typer.Exit(status) from error
