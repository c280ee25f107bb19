"""The schema of the Helm chart's values: `python -m tidelog_docs.chart_schema` writes it.

Settings of services come from the models that validate them. The defaults are in values.yaml, and
nowhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tidelog_admin_api.config import AdminApiConfig
from tidelog_broker.broker_config import BrokerConfig
from tidelog_controller.controller_config import ControllerConfig

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "tidelog"
SCHEMA = CHART / "values.schema.json"

# What the chart sets by values of its own, or by what it knows of a pod.
SET_BY_THE_CHART = frozenset(
    {
        *("config", "cluster", "log_level", "listen", "advertised_address", "metrics_listen"),
        *("etcd_endpoints", "external_listen", "external_advertised_address", "rack"),
        *("broker_id", "controller_id", "data_dir", "bootstrap", "controllers", "allowed_hosts"),
    }
)
_HOST_PORT = "^[^:,]+:[0-9]{1,5}$"
_KEPT = ("type", "enum", "minimum", "maximum", "pattern", "description", "anyOf", "items")

Schema = dict[str, Any]


def text(description: str, pattern: str | None = None) -> Schema:
    return {"type": "string", "description": description} | (
        {"pattern": pattern} if pattern else {}
    )


def integer(description: str, minimum: int, maximum: int) -> Schema:
    return {
        "type": "integer",
        "description": description,
        "minimum": minimum,
        "maximum": maximum,
    }


def boolean(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def choice(description: str, *values: str) -> Schema:
    return {"enum": list(values), "description": description}


def texts(description: str) -> Schema:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": {"type": "string"},
    }


def listed(description: str, items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "description": description, "items": items, **bounds}


def mapping(description: str, properties: Mapping[str, Schema]) -> Schema:
    """A mapping that rejects other keys, so that a misspelt one is found."""
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "properties": dict(properties),
    }


def settings(what: str, model: type[BaseModel]) -> Schema:
    properties = model.model_json_schema()["properties"]
    return mapping(
        f"further settings of {what}; those that the chart sets itself are rejected",
        {
            name: {key: found[key] for key in _KEPT if key in found}
            for name, found in sorted(properties.items())
            if name not in SET_BY_THE_CHART
        },
    )


def image(what: str) -> Schema:
    return mapping(
        f"image of {what}",
        {
            "repository": text(
                "name of the image, without the registry", "^[a-z0-9]+([._/-][a-z0-9]+)*$"
            ),
            "digest": text(
                "digest of the image, which pins its content whatever the tag is; empty: by tag",
                "^(sha256:[0-9a-f]{64})?$",
            ),
        },
    )


def scheduling(what: str) -> dict[str, Schema]:
    quantities = {
        "type": "object",
        "additionalProperties": {
            "type": ["string", "number"],
            "pattern": "^[0-9.]+(m|[kKMGTPE]i?)?$",
        },
    }
    toleration = mapping(
        "a toleration",
        {
            "key": {"type": "string"},
            "operator": {"enum": ["Exists", "Equal"]},
            "value": {"type": "string"},
            "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
            "tolerationSeconds": {"type": "integer"},
        },
    )
    return {
        "resources": mapping(
            f"resources of {what}",
            {
                "requests": quantities | {"description": "what a node reserves"},
                "limits": quantities | {"description": "upper bounds"},
            },
        ),
        "podAnnotations": texts("further annotations of the pods"),
        "nodeSelector": texts("labels that the pods' nodes must have"),
        "tolerations": listed("taints that the pods tolerate, as in Kubernetes", toleration),
        "priorityClassName": text("priority class of the pods; empty: the default one"),
    }


def peers(description: str) -> Schema:
    block = mapping("networks", {"cidr": {"type": "string"}, "except": {"type": "array"}})
    peer = mapping(
        "a peer",
        {
            "podSelector": {"type": "object"},
            "namespaceSelector": {"type": "object"},
            "ipBlock": block | {"required": ["cidr"]},
        },
    )
    return listed(description, peer | {"minProperties": 1})


def broker() -> Schema:
    zone = mapping(
        "brokers of one zone",
        {
            "name": text("part of the StatefulSet's name", "^[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?$"),
            "zone": text(
                "value of the nodes' label topology.kubernetes.io/zone",
                "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
            ),
            "firstBrokerId": integer(
                "id of the zone's first broker; leave room for more, such as 100, 200, 300",
                0,
                900_000,
            ),
            "replicas": integer("number of brokers in the zone", 1, 1_000),
        },
    )
    return mapping(
        "brokers: they store partitions, and each has a volume",
        {
            "replicas": integer("number of brokers, without zones", 1, 1_000),
            "zones": listed(
                "a StatefulSet of brokers for each zone, which is their rack; empty: one "
                "StatefulSet, and each node is a rack",
                zone | {"required": list(zone["properties"])},
                maxItems=20,
            ),
            "image": image("brokers"),
            "settings": settings("brokers", BrokerConfig),
            "restartWaitSeconds": integer(
                "how long a broker that is to stop waits until all other brokers run and are in "
                "sync; afterwards it stops",
                1,
                86_400,
            ),
            "storage": mapping(
                "the volume of each broker",
                {
                    "size": text("size; it can never be lowered", "^[1-9][0-9]*(Gi|Ti)$"),
                    "className": text("storage class; empty: the default one"),
                },
            ),
            **scheduling("brokers"),
        },
    )


def reached(one: str, address: str) -> dict[str, Schema]:
    """How clients outside reach the services of a role, of which one is `one`."""
    return {
        "address": text(address, r"^([^:,]+:([0-9]{1,5}|\{port\}))?$"),
        "port": integer(f"port of the Service of each {one}", 1, 65_535),
        "firstNodePort": integer(
            f"with NodePort: the first {one}'s port; the others follow", 30_000, 32_767
        ),
        "annotations": texts(
            f"annotations of these Services, with {{id}} for the {one}'s id, as a DNS controller "
            "needs them"
        ),
    }


def external() -> Schema:
    return mapping(
        "access of clients outside of the Kubernetes cluster: a Service for each broker and "
        "controller",
        {
            "enabled": boolean("whether clients outside can connect; no client is authenticated"),
            "type": choice("type of these Services", "LoadBalancer", "NodePort"),
            **reached(
                "broker",
                "host:port at which clients outside reach a broker, with {id} for its id and "
                "{port} for its port, such as broker-{id}.example.org:{port}",
            ),
            "controllers": mapping(
                "controllers, which administrators need",
                reached(
                    "controller",
                    "the same of a controller, such as controller-{id}.example.org:{port}; empty: "
                    "controllers have no address outside, and only the gateway administers from "
                    "there",
                ),
            ),
            "sourceRanges": listed(
                "networks of the clients",
                {"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]{1,3}$"},
                minItems=1,
            ),
        },
    )


def monitoring() -> dict[str, Schema]:
    labels = "further labels, by which a Prometheus selects it"
    return {
        "serviceMonitor": mapping(
            "scraping by the Prometheus operator",
            {
                "enabled": boolean("whether there is a ServiceMonitor; its CRD must be installed"),
                "interval": text("time between two scrapes", "^[1-9][0-9]*(s|m)$"),
                "labels": texts(labels),
            },
        ),
        "prometheusRule": mapping(
            "alerts for the Prometheus operator",
            {
                "enabled": boolean("whether there is a PrometheusRule; its CRD must be installed"),
                "labels": texts(labels),
            },
        ),
        "dashboards": mapping(
            "dashboards for Grafana, a ConfigMap each",
            {
                "enabled": boolean("whether there are these ConfigMaps"),
                "labels": texts("labels by which Grafana's sidecar finds them"),
                "annotations": texts("annotations, such as the folder for the sidecar"),
            },
        ),
    }


def services() -> dict[str, Schema]:
    return {
        "broker": broker(),
        "controller": mapping(
            "controllers: etcd elects the active one",
            {
                "replicas": integer("number of controllers", 1, 9),
                "image": image("controllers"),
                "settings": settings("controllers", ControllerConfig),
                **scheduling("controllers"),
            },
        ),
        "gateway": mapping(
            "the gateway: REST and the web console",
            {
                "enabled": boolean("whether it runs"),
                "replicas": integer("number of gateways", 1, 100),
                "image": image("the gateway"),
                "settings": settings("the gateway", AdminApiConfig),
                "allowedHosts": listed(
                    "further host names under which browsers reach it",
                    {"type": "string", "pattern": "^[^,\\s]+$"},
                ),
                **scheduling("the gateway"),
            },
        ),
    }


def schema() -> Schema:
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart tidelog",
        "$comment": "Generated by `make chart` from docs/tidelog_docs/chart_schema.py.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "cluster": text(
                "name of the cluster; clusters of different names can share one etcd",
                "^[A-Za-z0-9._-]{1,64}$",
            ),
            "logLevel": choice("lowest level that is logged", "debug", "info", "warning", "error"),
            "etcd": mapping(
                "the metadata store, which the chart does not install",
                {
                    "endpoints": listed(
                        "host:port of each member, without TLS and credentials",
                        {"type": "string", "pattern": _HOST_PORT},
                        minItems=1,
                        maxItems=15,
                    )
                },
            ),
            "images": mapping(
                "where images come from",
                {
                    "registry": text("registry and path before the names; empty: none"),
                    "tag": text(
                        "tag of images without a digest; empty: the chart's appVersion",
                        "^[A-Za-z0-9_.-]{0,128}$",
                    ),
                    "pullPolicy": choice(
                        "when nodes pull images", "Always", "IfNotPresent", "Never"
                    ),
                    "pullSecrets": listed(
                        "names of the secrets that the registry needs",
                        {"type": "string", "minLength": 1},
                    ),
                    "requireDigests": boolean("whether an image without a digest is rejected"),
                },
            ),
            **services(),
            "external": external(),
            "networkPolicy": mapping(
                "which pods may connect: no client is authenticated",
                {
                    "enabled": boolean("whether connections are restricted"),
                    "clients": peers(
                        "peers, as in Kubernetes, that may connect to brokers, controllers and "
                        "the gateway"
                    ),
                    "metrics": peers("peers that may read metrics"),
                },
            ),
            **monitoring(),
            "global": {"type": "object", "description": "what Helm passes to every chart; unused"},
        },
    }


def content() -> str:
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(content())
