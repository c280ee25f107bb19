"""Finds the brokers that a command connects to.

Sources in this order: `--bootstrap`; `--context`; `TIDELOG_BOOTSTRAP`; `TIDELOG_CONTEXT`; the
current context; the key `bootstrap` of `.tidelog/cluster.json`, which a local cluster writes, in
the current directory or the nearest one above it; the default ports of this machine. A context is a
cluster that the user has named (`tidelog.cli.contexts`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.cli.contexts import CONTEXT_VARIABLE, Context, Contexts
from tidelog.cli.exit_status import ClusterUnreachableError, UsageError

BOOTSTRAP_VARIABLE = "TIDELOG_BOOTSTRAP"
CLUSTER_FILE = Path(".tidelog") / "cluster.json"
DEFAULT_BOOTSTRAP = "127.0.0.1:7500,127.0.0.1:7501,127.0.0.1:7502,127.0.0.1:7503"
# A broker that accepts no connection within this time is not known to be down.
DIAL_TIMEOUT_SECONDS = 1.0


class Bootstrap(NamedTuple):
    """The addresses of brokers, and where they come from (`source`).

    - `services`: role, id and address of each service in a cluster file.
    - `context_name`, `context`: the context that has the addresses; None if another source has.
    - `is_named`: whether the command line names that context.
    """

    addresses: str
    source: str
    services: tuple[tuple[str, int, str], ...] = ()
    context_name: str = ""
    context: Context | None = None
    is_named: bool = False

    def known_addresses(self) -> Iterator[str]:
        """Yields addresses of services beside those of `addresses`."""
        for _, _, address in self.services:
            yield address
        if self.context is not None and self.context.controllers:
            yield from self.context.controllers.split(",")


def find_bootstrap(
    given: str | None,
    environment: Mapping[str, str],
    directory: Path,
    context_name: str | None = None,
    contexts: Callable[[], Contexts] | None = None,
) -> Bootstrap:
    """Finds the brokers to connect to.

    - `given`, `context_name`: `--bootstrap` and `--context`; None: not given.
    - `contexts`: reads the contexts; called only if no other source precedes them.

    Raises `UsageError` for an invalid file, for an unknown context, and for a `given` without
    addresses. An empty variable in a script must not select another cluster."""
    if given is not None and not given.strip(", "):
        raise UsageError(
            "--bootstrap is empty; name brokers, as --bootstrap 127.0.0.1:7500, or leave it out"
        )
    if context_name is not None and not context_name.strip():
        raise UsageError("--context is empty; name a context that tidelog context list shows")
    if given:
        return Bootstrap(given, "--bootstrap")
    if context_name and contexts:
        return _from_context(contexts(), context_name, "--context", is_named=True)
    from_environment = environment.get(BOOTSTRAP_VARIABLE)
    if from_environment:
        return Bootstrap(from_environment, BOOTSTRAP_VARIABLE)
    if contexts:
        known = contexts()
        from_environment = environment.get(CONTEXT_VARIABLE)
        if from_environment:
            return _from_context(known, from_environment, CONTEXT_VARIABLE)
        if known.current:
            return _from_context(known, known.current)
    for above in (directory, *directory.parents):
        path = above / CLUSTER_FILE
        if path.is_file():
            return _from_cluster_file(path)
    return Bootstrap(DEFAULT_BOOTSTRAP, "the default ports")


def _from_context(
    contexts: Contexts, name: str, named_by: str = "", *, is_named: bool = False
) -> Bootstrap:
    """`named_by`: the option or variable that names it; "" for the current context."""
    context = contexts.get(name)
    source = f"the current context {name} of {contexts.path}"
    if named_by:
        source = f"context {name} of {contexts.path}, which {named_by} names"
    return Bootstrap(
        context.bootstrap, source, context_name=name, context=context, is_named=is_named
    )


def _from_cluster_file(path: Path) -> Bootstrap:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}); name brokers with --bootstrap host:port, "
            "or delete the file and start the local cluster again"
        ) from error
    addresses = content.get("bootstrap") if isinstance(content, dict) else None
    if not isinstance(addresses, str) or not addresses:
        raise UsageError(
            f"{path} has no 'bootstrap' with host:port addresses; name brokers with "
            "--bootstrap, or start the local cluster again"
        )
    return Bootstrap(addresses, str(path), tuple(_services_in(content, path)))


def _services_in(content: dict[str, object], path: Path) -> Iterator[tuple[str, int, str]]:
    for role, key in (("broker", "brokers"), ("controller", "controllers")):
        parts = content.get(key)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and {"id", "address"} <= part.keys():
                if not isinstance(part["id"], int):
                    raise UsageError(
                        f"{path} has a {role} whose id {part['id']!r} is not a number; name "
                        "brokers with --bootstrap host:port, or start the local cluster again"
                    )
                yield role, part["id"], str(part["address"])


def no_service_answers(reason: str, *, paused: bool = False) -> ClusterUnreachableError:
    """Returns the error for a cluster of which neither a broker nor a controller answers.

    `paused`: some of them accept connections, so that their processes exist.
    """
    remedy = "start the cluster"
    if paused:
        remedy = (
            "check the processes that accept connections: are they stopped (kill -CONT PID lets "
            "them continue), or starved of CPU, memory or disk? Restart those that do not recover"
        )
    return ClusterUnreachableError(
        f"no service of the cluster answers: {reason}; {remedy}, or name a broker or controller "
        "that runs with --bootstrap host:port. The past is in the log files: tidelog trace --files"
    )


async def check_any_listens(bootstrap: Bootstrap, *, only_foreign: bool = False) -> None:
    """Raises `ClusterUnreachableError` at once if every address refuses connections, does not
    resolve, or belongs to another program, so that a command does not wait for a cluster that is
    not running. The client detects all other problems. `only_foreign`: raises only if another
    program listens at one of these addresses."""
    import asyncio
    import socket

    from tidelog.rpc.greeting import greeting

    unresolved: list[str] = []
    foreign: list[str] = []

    async def refusal(address: str) -> str | None:
        host, _, port = address.strip().rpartition(":")
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_SECONDS):
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except TimeoutError:
            return None
        except socket.gaierror as error:
            unresolved.append(host)
            return str(error)
        except OSError as error:
            return error.strerror or str(error)
        found = await greeting(reader, writer)
        writer.close()
        if not found.is_foreign:
            return None
        foreign.append(f"{address.strip()} {found.value}")
        return found.value

    addresses = [address for address in bootstrap.addresses.split(",") if address.strip()]
    if not await _all_refuse(map(refusal, addresses)):
        return
    if foreign:
        raise ClusterUnreachableError(
            f"no broker listens at {','.join(addresses)} (from {bootstrap.source}): "
            f"{', '.join(foreign)} (is it the port of a gateway or of metrics?); name a broker's "
            "gRPC address with --bootstrap host:port"
        )
    if only_foreign:
        return
    if len(unresolved) == len(addresses):
        raise ClusterUnreachableError(
            f"the host name {', '.join(sorted(set(unresolved)))} (from {bootstrap.source}) cannot "
            "be resolved; correct it, or name running brokers with --bootstrap host:port"
        )
    raise ClusterUnreachableError(
        f"no broker listens at {','.join(addresses)} (from {bootstrap.source}); start the "
        "cluster (make up), or name running brokers with --bootstrap host:port"
    )


async def _all_refuse(refusals: Iterable[Coroutine[Any, Any, str | None]]) -> bool:
    """Returns False as soon as one of them returns None. Cancels the others."""
    import asyncio

    dialed = [asyncio.create_task(refusal) for refusal in refusals]
    try:
        for each in asyncio.as_completed(dialed):
            if await each is None:
                return False
        return True
    finally:
        for task in dialed:
            task.cancel()
        await asyncio.gather(*dialed, return_exceptions=True)
