"""Generated values for the Helm chart, and misspelt ones."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

VALID_SETS = 50
DIGEST = "sha256:" + "0123456789abcdef" * 4

Values = dict[str, Any]
_Change = Callable[[random.Random, Values], None]


def _put(values: Values, path: str, value: object) -> None:
    *above, last = path.split(".")
    for name in above:
        values = values.setdefault(name, {})
    values[last] = value


def _zones(rng: random.Random, values: Values) -> None:
    _put(
        values,
        "broker.zones",
        [
            {
                "name": name,
                "zone": f"eu-west-1{name}",
                "firstBrokerId": 100 * position,
                "replicas": rng.randint(1, 3),
            }
            for position, name in enumerate("abc"[: rng.randint(1, 3)])
        ],
    )


def _external(rng: random.Random, values: Values) -> None:
    _put(values, "external.enabled", True)
    if rng.random() < 0.5:
        _put(values, "external.address", "broker-{id}.example.org:{port}")
        _put(values, "external.port", rng.choice([443, 9500, 65_535]))
        annotations = {"external-dns.alpha.kubernetes.io/hostname": "broker-{id}.example.org"}
        _put(values, "external.annotations", annotations)
        if rng.random() < 0.5:
            _put(values, "external.controllers.address", "controller-{id}.example.org:9400")
            _put(values, "external.controllers.annotations", annotations)
    else:
        _put(values, "external.type", "NodePort")
        _put(values, "external.address", "node.example.org:{port}")
        _put(values, "external.firstNodePort", rng.randint(30_000, 32_000))
        if rng.random() < 0.5:
            _put(values, "external.controllers.address", "node.example.org:{port}")
            _put(values, "external.controllers.firstNodePort", rng.randint(32_100, 32_700))
    _put(values, "external.sourceRanges", ["10.0.0.0/8", "2001:db8::/32"])


def _settings(rng: random.Random, values: Values) -> None:
    _put(values, "broker.settings.flush_interval_ms", rng.choice([100, 10_000_000]))
    _put(values, "broker.settings.scrub_cpu_percent", 0.5)
    _put(values, "controller.settings.leader_balance", rng.random() < 0.5)
    _put(values, "gateway.settings.console", False)


def _scheduling(rng: random.Random, values: Values) -> None:
    part = rng.choice(["broker", "controller", "gateway"])
    _put(values, f"{part}.nodeSelector", {"disk": "fast"})
    _put(
        values,
        f"{part}.tolerations",
        [{"key": "logs", "operator": "Exists", "effect": "NoSchedule"}],
    )
    _put(values, f"{part}.priorityClassName", "high")
    _put(values, f"{part}.podAnnotations", {"team": "42"})
    _put(values, f"{part}.resources", {"requests": {"cpu": 2, "memory": "1Gi"}})


def _policies(rng: random.Random, values: Values) -> None:
    if rng.random() < 0.3:
        _put(values, "networkPolicy.enabled", False)
    clients = [
        {"namespaceSelector": {"matchLabels": {"team": "a"}}},
        {"ipBlock": {"cidr": "10.1.0.0/16"}},
    ]
    _put(values, "networkPolicy.clients", rng.sample(clients, rng.randint(0, 2)))
    _put(values, "networkPolicy.metrics", rng.sample(clients, rng.randint(0, 1)))


def _images(rng: random.Random, values: Values) -> None:
    _put(values, "images.registry", rng.choice(["registry.example.org:5000/logs", "example.org/"]))
    _put(values, "images.pullSecrets", ["registry"])
    if rng.random() < 0.5:
        _put(values, "images.requireDigests", True)
        for part in ("broker", "controller", "gateway"):
            _put(values, f"{part}.image.digest", DIGEST)
    else:
        _put(values, "images.tag", "0.2.0-rc.1")


_CHANGES: tuple[_Change, ...] = (
    _zones,
    _external,
    _settings,
    _scheduling,
    _policies,
    _images,
    lambda rng, values: _put(values, "broker.replicas", rng.randint(1, 9)),
    lambda rng, values: _put(values, "controller.replicas", rng.randint(1, 5)),
    lambda _, values: _put(values, "gateway.enabled", False),
    lambda rng, values: _put(values, "gateway.replicas", rng.randint(1, 5)),
    lambda rng, values: _put(values, "broker.storage.size", rng.choice(["1Gi", "2Ti"])),
    lambda _, values: _put(values, "broker.storage.className", "fast"),
    lambda _, values: _put(values, "serviceMonitor", {"enabled": True, "labels": {"a": "b"}}),
    lambda _, values: _put(values, "prometheusRule", {"enabled": True, "labels": {"a": "b"}}),
    lambda _, values: _put(values, "dashboards", {"enabled": True, "annotations": {"a": "b"}}),
    lambda rng, values: _put(values, "logLevel", rng.choice(["debug", "error"])),
    lambda _, values: _put(values, "cluster", "north-1"),
    lambda rng, values: _put(values, "broker.restartWaitSeconds", rng.randint(1, 86_400)),
    lambda _, values: _put(values, "etcd.endpoints", ["etcd.metadata.svc:2379"]),
    lambda _, values: _put(values, "gateway.allowedHosts", ["tidelog.example.org"]),
)


def valid_sets() -> Iterator[Values]:
    """Yields VALID_SETS sets: the defaults, each change alone, and random combinations."""
    rng = random.Random(44)
    yield {}
    for change in _CHANGES:
        values: Values = {}
        change(rng, values)
        yield values
    for _ in range(VALID_SETS - 1 - len(_CHANGES)):
        values = {}
        for change in rng.sample(_CHANGES, rng.randint(2, len(_CHANGES))):
            change(rng, values)
        yield values


# Path of a misspelt or invalid value, and the value.
MISSPELT: dict[str, object] = {
    "brokers.replicas": 3,
    "broker.replica": 3,
    "broker.replicas": "three",
    "broker.storage.sizes": "50Gi",
    "broker.storage.size": "50GB",
    "broker.image.tag": "0.1.0",
    "broker.image.digest": "sha256:abc",
    "broker.settings.flush_interval": 100,
    "broker.settings.broker_id": 7,
    "broker.settings.flush_interval_ms": 5,
    "broker.resources.limit": {"memory": "1Gi"},
    "broker.tolerations": [{"keys": "a"}],
    "broker.zones": [{"name": "a", "zone": "a", "replicas": 1, "firstId": 1}],
    "controller.replicas": 0,
    "etcd.endpoints": ["etcd-0.etcd"],
    "gateway.enable": False,
    "external.type": "ClusterIP",
    "external.firstNodePort": 80,
    "external.controllers.adress": "controller-{id}.example.org:9400",
    "external.controllers.address": "controller-{id}.example.org",
    "networkpolicy.enabled": False,
    "networkPolicy.clients": [{"podSelectors": {}}],
    "serviceMonitor.intervall": "30s",
    "loglevel": "debug",
}


def misspelt(path: str) -> Values:
    values: Values = {}
    _put(values, path, copy.deepcopy(MISSPELT[path]))
    return values
