"""`prometheus-targets.json`: the targets of a local cluster, for Prometheus' file discovery.

    [
      {
        "targets": ["127.0.0.1:8501"],
        "labels": {"cluster": "default", "service": "broker-1"}
      }, …
    ]

A part that does not answer has both labels, too, so that alerts can name it.
"""

from __future__ import annotations

import json
from pathlib import Path

from tidelog_runtime.local.cluster_file import ClusterFile

TARGETS_FILE = "prometheus-targets.json"


def targets(cluster: ClusterFile) -> list[dict[str, object]]:
    """Returns the targets; a part without metrics has none."""
    parts = [
        *((f"controller-{part.id}", part.metrics) for part in cluster.controllers),
        *((f"broker-{part.id}", part.metrics) for part in cluster.brokers),
        ("admin-api", cluster.gateway.address if cluster.gateway else ""),
    ]
    return [
        {"targets": [address], "labels": {"cluster": cluster.cluster, "service": service}}
        for service, address in parts
        if address
    ]


def write_targets(cluster: ClusterFile, directory: Path) -> None:
    """Replaces the file atomically, because Prometheus may read it at any time."""
    temporary = directory / f".{TARGETS_FILE}"
    temporary.write_text(json.dumps(targets(cluster), indent=2) + "\n")
    temporary.replace(directory / TARGETS_FILE)
