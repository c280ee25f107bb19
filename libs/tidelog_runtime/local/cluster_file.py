"""`cluster.json`: the addresses of a local cluster's parts, for the CLI and for people.

    {
      "cluster": "default",
      "etcd": "127.0.0.1:2379",
      "embedded_etcd": true,
      "controllers": [
        {"id": 1, "address": "127.0.0.1:7401", "pid": 4711, "metrics": "127.0.0.1:8401"}, …
      ],
      "brokers": [
        {"id": 1, "address": "127.0.0.1:7501", "pid": 4713, "data_dir": "/…",
         "metrics": "127.0.0.1:8501"}, …
      ],
      "gateway": {"address": "127.0.0.1:7600", "pid": 4716},
      "bootstrap": "127.0.0.1:7501,127.0.0.1:7502,127.0.0.1:7503"
    }

- `embedded_etcd`: etcd is a part of the cluster; false: TIDELOG_ETCD names it.
- `pid`: null if the part is not running.
- `metrics`: the address that Prometheus scrapes; empty: metrics are off. The gateway is scraped at
  its own address.
- `gateway`: null if the cluster has none.
- `bootstrap`: the addresses for clients.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelog_runtime.local import ClusterError

CLUSTER_FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class ControllerPart:
    id: int
    address: str
    pid: int | None
    metrics: str = ""


@dataclass(frozen=True, slots=True)
class BrokerPart:
    id: int
    address: str
    pid: int | None
    data_dir: str
    metrics: str = ""


@dataclass(frozen=True, slots=True)
class GatewayPart:
    address: str
    pid: int | None


@dataclass(frozen=True, slots=True)
class ClusterFile:
    cluster: str
    etcd: str
    controllers: Sequence[ControllerPart]
    brokers: Sequence[BrokerPart]
    gateway: GatewayPart | None = None
    embedded_etcd: bool = True

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def write(self, directory: Path) -> None:
        """Replaces the file atomically, so that no reader sees a part of it."""
        content = json.dumps(asdict(self) | {"bootstrap": self.bootstrap}, indent=2)
        temporary = directory / f".{CLUSTER_FILE}.{os.getpid()}"
        try:
            temporary.write_text(content + "\n")
            temporary.replace(directory / CLUSTER_FILE)
        except OSError:
            # On a full disk the partial file would take room that others need.
            with suppress(OSError):
                temporary.unlink()
            raise


class ClusterFileError(ClusterError):
    """The file exists but does not have the form that `ClusterFile.write` writes."""


def read_cluster_file(directory: Path) -> ClusterFile | None:
    """Returns None if no cluster has been started in this directory yet."""
    path = directory / CLUSTER_FILE
    if not path.exists():
        return None
    try:
        raw = json.loads(path.read_text())
        return ClusterFile(
            cluster=raw["cluster"],
            etcd=raw["etcd"],
            controllers=[ControllerPart(**part) for part in raw["controllers"]],
            brokers=[BrokerPart(**part) for part in raw["brokers"]],
            gateway=GatewayPart(**raw["gateway"]) if raw.get("gateway") else None,
            # Files of earlier releases lack this field.
            embedded_etcd=raw.get("embedded_etcd", True),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterFileError(
            f"{path} is not a cluster file ({error!r}); delete it: the cluster chooses new ports "
            "and loses no data"
        ) from error


Setting = str | int | float | bool | list[str]


def write(path: Path, settings: Mapping[str, Setting]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = {_toml(value)}\n" for name, value in settings.items()]
    path.write_text("# Written at each start of the local cluster.\n" + "".join(lines))


def _toml(value: Setting) -> str:
    # JSON's strings, numbers, booleans and lists of strings are also valid TOML, unless characters
    # are escaped as surrogate pairs.
    return json.dumps(value, ensure_ascii=False)
