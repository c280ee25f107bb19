"""Restarts services of a running cluster with other settings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from integration.waiting import until
from tidelog.client import Admin
from tidelog.errors import TidelogError
from tidelog_runtime.local import cluster_file
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import Setting


def _reconfigure(cluster: LocalCluster, service: str, settings: Mapping[str, Setting]) -> None:
    path = cluster.directory / "config" / f"{service}.toml"
    with path.open("rb") as file:
        known = tomllib.load(file)
    cluster_file.write(path, {**known, **settings})


def directory_id(path: Path) -> str:
    """The directory id in `broker.json`, below its line of kind and checksum."""
    _, _, body = (path / "broker.json").read_text().partition("\n")
    return str(json.loads(body)["node_uuid"])


async def restart_broker(
    cluster: LocalCluster, broker_id: int, settings: Mapping[str, Setting]
) -> None:
    await cluster.stop_broker(broker_id)
    _reconfigure(cluster, f"broker-{broker_id}", settings)
    cluster.start_broker(broker_id)


async def restart_controller(
    cluster: LocalCluster, controller_id: int, settings: Mapping[str, Setting]
) -> None:
    await cluster.stop_controller(controller_id)
    _reconfigure(cluster, f"controller-{controller_id}", settings)
    cluster.start_controller(controller_id)


async def until_registered(cluster: LocalCluster, address: str = "") -> None:
    """Waits until all brokers are registered, one of them at that address."""

    async def check() -> bool:
        try:
            async with Admin(cluster.bootstrap) as admin:
                brokers = (await admin.describe_cluster()).brokers
        except TidelogError:
            return False
        known = {broker.address for broker in brokers}
        return len(known) == len(cluster.broker_ids) and (not address or address in known)

    await until(check, "all brokers are registered")
