"""`make up`: a complete cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tidelog.missing_extras import exit_not_installed, is_installed

if not is_installed("rich"):
    exit_not_installed("tidelog_runtime.local", "tidelog-services[local]")

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidelog_runtime.local import ClusterError
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import CLUSTER_FILE
from tidelog_runtime.local.commands import (
    DEFAULT_BROKERS,
    DEFAULT_CONTROLLERS,
    MAX_MEMBERS,
    PROGRAM,
    cluster_command,
    last_options,
    part_command,
)
from tidelog_runtime.local.data_directory import is_full, os_error
from tidelog_runtime.local.members import how_it_ended
from tidelog_runtime.local.process import LocalProcess
from tidelog_runtime.local.start_requests import (
    answer_requests,
    request_start,
    start_part,
    start_report,
)

DEFAULT_DIRECTORY = ".tidelog"
_DEATH_CHECK_SECONDS = 0.5
# Wider than any row.
_TABLE_WIDTH = 200


def main(argv: Sequence[str]) -> int:
    arguments = _parse(argv)
    if arguments.start is not None:
        return _start_part(arguments.directory, arguments.start)
    console = Console(stderr=False)
    try:
        return asyncio.run(_run(_cluster(arguments), console))
    except (ClusterError, OSError) as error:
        if isinstance(error, OSError):
            error = os_error(arguments.directory, error)
        Console(stderr=True).print(
            f"[red]The cluster cannot run:[/] {escape(str(error))}",
            highlight=False,
            soft_wrap=True,
        )
        return 1


def _cluster(arguments: argparse.Namespace) -> LocalCluster:
    """Returns the cluster to run: by default with as many parts as it had before."""
    last = last_options(arguments.directory)
    brokers = DEFAULT_BROKERS if last is None else last.brokers
    controllers = DEFAULT_CONTROLLERS if last is None else last.controllers
    return LocalCluster(
        arguments.directory,
        brokers=arguments.brokers or brokers,
        controllers=arguments.controllers or controllers,
        gateway=arguments.gateway,
    )


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROGRAM}",
        description="Runs a Tidelog cluster on this machine until Ctrl-C. "
        "With TIDELOG_ETCD=host:port it uses the etcd there, else an embedded one.",
    )
    parser.add_argument(
        "--directory",
        type=_directory,
        default=DEFAULT_DIRECTORY,
        help="data, logs and cluster.json (default: .tidelog)",
    )
    for parts, default in ("brokers", DEFAULT_BROKERS), ("controllers", DEFAULT_CONTROLLERS):
        parser.add_argument(
            f"--{parts}",
            type=_count,
            help=f"how many (default: as many as at the last start, at first {default})",
        )
    parser.add_argument(
        "--gateway",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the REST gateway and its console run, too (default: they do)",
    )
    parser.add_argument(
        "--start",
        metavar="PART",
        help="in place of all that: start a part again, such as broker-2 or etcd, that has ended "
        "in the cluster that runs in the directory; the next broker id adds a broker",
    )
    return parser.parse_args(argv)


def _start_part(directory: Path, name: str) -> int:
    try:
        report = start_report(directory, name)
        request_start(directory, name)
    except (ClusterError, OSError) as error:
        if isinstance(error, OSError):
            error = os_error(directory, error)
        Console(stderr=True).print(
            f"[red]{escape(name)} was not started:[/] {escape(str(error))}",
            highlight=False,
            soft_wrap=True,
        )
        return 1
    _line(Console(), report)
    return 0


def _directory(text: str) -> Path:
    """Rejects an empty value, e.g. of an unset variable: it would mean the working directory."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is no directory")
    return Path(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_MEMBERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_MEMBERS}")
    return int(text)


async def _run(cluster: LocalCluster, console: Console) -> int:
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    waiting = asyncio.create_task(interrupted.wait())
    serving = asyncio.create_task(_serve(cluster, console))
    try:
        await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving  # raises the reason why it could not start
    finally:
        for task in (waiting, serving):
            task.cancel()
        await asyncio.gather(waiting, serving, return_exceptions=True)
        if not serving.done() or serving.cancelled():
            console.print("Stopping …")
        await cluster.stop()
    again = cluster_command(cluster.directory, cluster.options)
    _line(console, f"Stopped. The data is kept in {cluster.directory}. Start it again: {again}")
    return 0


async def _serve(cluster: LocalCluster, console: Console) -> None:
    """Starts the cluster, shows it, and then reports every part that dies."""
    with console.status("Starting the cluster …"):
        await cluster.start()
        await cluster.ready()
    _show(cluster, console)
    reported_pids: set[int | None] = set()
    while True:
        for process in cluster.died():
            if process.started_pid not in reported_pids:
                reported_pids.add(process.started_pid)
                _line(console, _death(process, cluster))
        for name in answer_requests(cluster.directory, partial(start_part, cluster)):
            _line(console, f"{name} was started.")
        await asyncio.sleep(_DEATH_CHECK_SECONDS)


def _death(process: LocalProcess, cluster: LocalCluster) -> str:
    """Returns one line: the part that ended and how, its log, and a shell command to start it."""
    log = _relative(process.log_path)
    ended = f"{process.name} exited unexpectedly ({how_it_ended(process)}); its log: {log}"
    if is_full(cluster.directory):
        ended += f"; the disk of {_relative(cluster.directory)} is full, so free some of it first"
    return f"{ended}; start it again: {part_command(cluster.directory, process.name)}"


def _relative(path: Path) -> str:
    """Returns the path relative to the working directory, if it lies below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _line(console: Console, text: str) -> None:
    """Prints a line without wrapping it, so that it can be copied."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _show(cluster: LocalCluster, console: Console) -> None:
    parts = cluster.describe()
    rows = [("etcd", parts.etcd, "", "")]
    rows += [(f"controller {c.id}", c.address, c.metrics, str(c.pid)) for c in parts.controllers]
    rows += [(f"broker {b.id}", b.address, b.metrics, str(b.pid)) for b in parts.brokers]
    if parts.gateway is not None:
        address = parts.gateway.address
        rows.append(("gateway", address, f"{address}/metrics", str(parts.gateway.pid)))
    table = Table(title=f"Tidelog cluster {parts.cluster!r} is running", title_justify="left")
    for column in ("part", "address", "metrics", "process"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # A narrow terminal wraps the lines, and no address is truncated.
    Console(file=console.file, width=_TABLE_WIDTH).print(table)
    for part, (usual, chosen) in cluster.replaced_ports.items():
        _line(console, f"Port {usual} is occupied: {part} has port {chosen} instead.")
    if parts.gateway is not None:
        console.print(
            f"Console and REST: [bold]http://{parts.gateway.address}/[/]", highlight=False
        )
    console.print(f"Clients: [bold]{parts.bootstrap}[/]", highlight=False, soft_wrap=True)
    directory = cluster.directory
    _line(console, f"All addresses: {_relative(directory / CLUSTER_FILE)}")
    _line(console, f"Logs: {_relative(directory / 'logs')}; data: {_relative(directory)}")
    if cluster.etcd is not None:
        console.print(
            "The embedded etcd (3.5.1) is for demo and tests; in production use 3.4.22, "
            "3.5.6 or later.",
            highlight=False,
        )
    console.print("Ctrl-C stops all of it; the data is kept.")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
