"""Commands that start a local cluster or one of its parts again, as `make up` prints them.

Each names the directory and the options with which the cluster was started. It therefore works
from any directory and shell.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from tidelog_runtime.local.cluster_file import ClusterFile, read_cluster_file

ETCD_VARIABLE = "TIDELOG_ETCD"
PROGRAM = "tidelog_runtime.local"
DEFAULT_BROKERS = 3
DEFAULT_CONTROLLERS = 2
# Brokers, and controllers, of one cluster.
MAX_MEMBERS = 99


class ClusterOptions(NamedTuple):
    """The options with which a cluster was started. `etcd`: host:port; empty: the embedded one."""

    brokers: int
    controllers: int
    gateway: bool
    etcd: str


def last_options(directory: Path) -> ClusterOptions | None:
    """Returns the options of the cluster that was last started there; None: there was none.

    Brokers that were added while it ran count."""
    known = read_cluster_file(directory)
    return None if known is None else options_of(known)


def options_of(parts: ClusterFile) -> ClusterOptions:
    return ClusterOptions(
        len(parts.brokers),
        len(parts.controllers),
        parts.gateway is not None,
        "" if parts.embedded_etcd else parts.etcd,
    )


def cluster_command(directory: Path, options: ClusterOptions | None) -> str:
    """Returns the shell command. `options` None: no cluster was started in the directory yet."""
    words = _program(directory)
    if options is None:
        return shlex.join(words)
    words += ["--brokers", str(options.brokers), "--controllers", str(options.controllers)]
    words.append("--gateway" if options.gateway else "--no-gateway")
    etcd = f"{ETCD_VARIABLE}={shlex.quote(options.etcd)} " if options.etcd else ""
    return etcd + shlex.join(words)


def part_command(directory: Path, part: str) -> str:
    return shlex.join([*_program(directory), "--start", part])


def _program(directory: Path) -> list[str]:
    return [sys.executable, "-m", PROGRAM, "--directory", str(directory.absolute())]
