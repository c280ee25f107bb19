"""`prometheus-targets.json`: what Prometheus scrapes of a local cluster, in the form of its
discovery by files.

    [
      {
        "targets": ["127.0.0.1:8501"],
        "labels": {"cluster": "default", "service": "broker-1"}
      }, …
    ]

Both labels are there for a part that does not answer, too: alerts say which one it is.
"""

from __future__ import annotations

import json
from pathlib import Path

from tidelog_runtime.local.cluster_file import ClusterFile

TARGETS_FILE = "prometheus-targets.json"


def targets(cluster: ClusterFile) -> list[dict[str, object]]:
    """None for a part that measures nothing."""
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
    """Replaces the file as a whole: Prometheus may read it at any time."""
    temporary = directory / f".{TARGETS_FILE}"
    temporary.write_text(json.dumps(targets(cluster), indent=2) + "\n")
    temporary.replace(directory / TARGETS_FILE)
