"""`make up`: a whole cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tidelog_runtime.local.cluster import LocalCluster, describe_death
from tidelog_runtime.local.cluster_file import CLUSTER_FILE
from tidelog_runtime.local.errors import ClusterError

_DEATH_CHECK_SECONDS = 0.5


def main(argv: Sequence[str]) -> int:
    arguments = _parse(argv)
    cluster = LocalCluster(
        Path(arguments.directory),
        brokers=arguments.brokers,
        controllers=arguments.controllers,
        gateway=arguments.gateway,
    )
    console = Console(stderr=False)
    try:
        return asyncio.run(_run(cluster, console))
    except ClusterError as error:
        Console(stderr=True).print(f"[red]The cluster cannot run:[/] {error}", highlight=False)
        return 1


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tidelog_runtime.local",
        description="Runs a Tidelog cluster on this machine until Ctrl-C. "
        "With TIDELOG_ETCD=host:port it uses the etcd there, else an embedded one.",
    )
    parser.add_argument(
        "--directory", default=".tidelog", help="data, logs and cluster.json (default: .tidelog)"
    )
    parser.add_argument("--brokers", type=_count, default=3, help="how many (default: 3)")
    parser.add_argument("--controllers", type=_count, default=2, help="how many (default: 2)")
    parser.add_argument(
        "--gateway",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the REST gateway and its console run, too (default: they do)",
    )
    return parser.parse_args(argv)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 99:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 99")
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
            await serving  # raises why it could not start
    finally:
        for task in (waiting, serving):
            task.cancel()
        await asyncio.gather(waiting, serving, return_exceptions=True)
        console.print("Stopping …")
        await cluster.stop()
    console.print(f"Stopped. The data is kept in {cluster.directory}.", highlight=False)
    return 0


async def _serve(cluster: LocalCluster, console: Console) -> None:
    """Starts the cluster, shows it, then tells of every part that dies."""
    with console.status("Starting the cluster …"):
        await cluster.start()
        await cluster.ready()
    _show(cluster, console)
    told: set[int | None] = set()
    while True:
        for process in cluster.died():
            if process.started_pid not in told:
                told.add(process.started_pid)
                console.print(f"[red]{describe_death(process)}[/]", highlight=False)
        await asyncio.sleep(_DEATH_CHECK_SECONDS)


def _show(cluster: LocalCluster, console: Console) -> None:
    parts = cluster.describe()
    table = Table(title=f"Tidelog cluster {parts.cluster!r} is running", title_justify="left")
    for column in ("part", "address", "metrics", "process", "data"):
        table.add_column(column, no_wrap=column != "data")
    etcd_data = cluster.directory / "etcd" if cluster.etcd is not None else "(not ours)"
    table.add_row("etcd", parts.etcd, "", "", str(etcd_data))
    for controller in parts.controllers:
        table.add_row(
            f"controller {controller.id}",
            controller.address,
            controller.metrics,
            str(controller.pid),
            "",
        )
    for broker in parts.brokers:
        table.add_row(
            f"broker {broker.id}",
            broker.address,
            broker.metrics,
            str(broker.pid),
            broker.data_dir,
        )
    if parts.gateway is not None:
        table.add_row(
            "gateway",
            parts.gateway.address,
            f"{parts.gateway.address}/metrics",
            str(parts.gateway.pid),
            "",
        )
    console.print(table)
    if parts.gateway is not None:
        console.print(
            f"Console and REST: [bold]http://{parts.gateway.address}/[/]", highlight=False
        )
    console.print(f"Clients: [bold]{parts.bootstrap}[/]", highlight=False)
    console.print(
        f"All addresses: {cluster.directory / CLUSTER_FILE}; logs: {cluster.directory / 'logs'}",
        highlight=False,
    )
    if cluster.etcd is not None:
        console.print(
            "The embedded etcd (3.5.1) is for demo and tests; in production use 3.4.22, "
            "3.5.6 or later.",
            highlight=False,
        )
    console.print("Ctrl-C stops all of it; the data is kept.")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
