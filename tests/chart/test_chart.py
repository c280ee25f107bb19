"""The Helm chart, rendered by helm: valid for every version of Kubernetes that it names, and
consistent in itself."""

from __future__ import annotations

import functools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from chart.conftest import CHART, Helm
from chart.value_sets import DIGEST, MISSPELT, misspelt, valid_sets
from tidelog_broker.broker_config import BrokerConfig
from tidelog_controller.controller_config import ControllerConfig
from tidelog_runtime.config import load

ROOT = CHART.parents[2]
VERSIONS = tuple(f"1.{minor}" for minor in range(28, 38))
SCHEMAS = ROOT / "deploy" / "kubernetes" / "schemas"
OWN_SCHEMAS = {
    "ServiceMonitor": json.loads((SCHEMAS / "servicemonitor.json").read_text()),
    "PrometheusRule": json.loads((SCHEMAS / "prometheusrule.json").read_text()),
}
SETS = list(valid_sets())

Document = dict[str, Any]


@functools.cache
def registry(version: str) -> Registry[Any]:
    """The definitions of a version of Kubernetes: reading them takes longer than all else."""
    path = f"kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
    return (Resource.from_contents(schema_contents(path, version)) @ Registry()).crawl()


@functools.cache
def validator(kind: str, api_version: str, version: str) -> jsonschema.Draft202012Validator:
    """As `kubernetes_validate.validate` makes one for each document."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    path = f"kubernetes-json-schema/v{version}.0-local-strict/{kind.lower()}-{group}.json"
    schema = schema_contents(path, version)
    known = Resource.from_contents(schema) @ registry(version)
    return jsonschema.Draft202012Validator(schema, registry=known)


@functools.cache
def check(document: str, version: str) -> None:
    """Most documents are the same in many sets."""
    found = json.loads(document)
    if schema := OWN_SCHEMAS.get(found["kind"]):
        jsonschema.validate(found, schema)
    else:
        validator(found["kind"], found["apiVersion"], version).validate(found)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_misspelt_field_is_found(helm: Helm, version: str) -> None:
    broken = by_name(helm.template({}))["StatefulSet/tidelog-broker"]
    broken["spec"]["template"]["spec"]["terminationGracePeriod"] = 60
    with pytest.raises(jsonschema.ValidationError):
        check(json.dumps(broken), version)


def by_name(documents: list[Document]) -> dict[str, Document]:
    found = {f"{d['kind']}/{d['metadata']['name']}": d for d in documents}
    assert len(found) == len(documents), "two documents of one name"
    return found


@pytest.mark.parametrize("number", range(len(SETS)))
def test_generated_values_render_to_valid_documents(helm: Helm, number: int) -> None:
    documents = by_name(helm.template(SETS[number])).values()
    for document in documents:
        for version in VERSIONS:
            check(json.dumps(document, sort_keys=True), version)


def test_there_are_fifty_sets_of_values() -> None:
    assert len(SETS) == len({json.dumps(values, sort_keys=True) for values in SETS}) == 50


@pytest.mark.parametrize("path", MISSPELT)
def test_a_misspelt_value_is_rejected(helm: Helm, path: str) -> None:
    assert "values don't meet the specifications of the schema" in helm.rejection(misspelt(path))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"external": {"enabled": True}}, "external.address is empty"),
        ({"external": {"enabled": True, "address": "a:1"}}, "has no {id}"),
        (
            {"external": {"enabled": True, "type": "NodePort", "address": "a:1"}},
            "has no {port}",
        ),
        (
            {
                "external": {
                    "enabled": True,
                    "address": "a-{id}:1",
                    "controllers": {"address": "a:1"},
                }
            },
            "external.controllers.address has no {id}",
        ),
        (
            {
                "external": {
                    "enabled": True,
                    "type": "NodePort",
                    "address": "a:{port}",
                    "controllers": {"address": "a:1"},
                }
            },
            "external.controllers.address has no {port}",
        ),
        (
            {
                "external": {
                    "enabled": True,
                    "type": "NodePort",
                    "address": "a:{port}",
                    "firstNodePort": 30_399,
                    "controllers": {"address": "a:{port}"},
                }
            },
            "broker-1 and controller-0 would both have nodePort 30400",
        ),
        (
            {
                "external": {
                    "enabled": True,
                    "address": "{id}.example.org:1",
                    "controllers": {"address": "{id}.example.org:1"},
                }
            },
            "broker-0 and controller-0 would both have the address 0.example.org:1",
        ),
        ({"images": {"requireDigests": True}}, "has no digest; set it to sha256:"),
        (
            {
                "broker": {
                    "zones": [
                        {"name": "a", "zone": "a", "firstBrokerId": 0, "replicas": 2},
                        {"name": "b", "zone": "b", "firstBrokerId": 1, "replicas": 1},
                    ]
                }
            },
            "zones a and b would both have a broker 1",
        ),
    ],
)
def test_values_that_contradict_each_other_are_rejected(
    helm: Helm, values: Document, problem: str
) -> None:
    assert problem in helm.rejection(values)


def test_an_old_kubernetes_is_rejected(helm: Helm) -> None:
    assert "requires kubeVersion" in helm.rejection({}, ["--kube-version", "1.27.0"])


def test_the_chart_passes_lint(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_the_manifests_are_the_chart_rendered(helm: Helm) -> None:
    """`make chart` writes them; the unit tests check them without helm."""
    directory = ROOT / "deploy" / "kubernetes"
    values = yaml.safe_load((directory / "values.yaml").read_text())
    committed = list(yaml.safe_load_all((directory / "tidelog.yaml").read_text()))
    assert by_name(helm.template(values, "--namespace", "tidelog")) == by_name(committed)


def test_a_digest_takes_the_place_of_the_tag(helm: Helm) -> None:
    values = {
        "images": {"registry": "example.org", "tag": "9"},
        "broker": {"image": {"digest": DIGEST}},
    }
    found = by_name(helm.template(values))
    images = {
        name: found[name]["spec"]["template"]["spec"]["containers"][0]["image"]
        for name in ("StatefulSet/tidelog-broker", "StatefulSet/tidelog-controller")
    }
    assert list(images.values()) == [
        f"example.org/tidelog-broker@{DIGEST}",
        "example.org/tidelog-controller:9",
    ]


def test_large_numbers_of_settings_are_written_in_full(helm: Helm) -> None:
    values = {"broker": {"settings": {"scrub_period_ms": 1_209_600_000, "scrub_cpu_percent": 0.5}}}
    env = container(by_name(helm.template(values))["StatefulSet/tidelog-broker"])["env"]
    variables = {entry["name"]: entry.get("value") for entry in env}
    assert variables["TIDELOG_SCRUB_PERIOD_MS"] == "1209600000"
    assert variables["TIDELOG_SCRUB_CPU_PERCENT"] == "0.5"


def container(workload: Document) -> Document:
    found: Document = workload["spec"]["template"]["spec"]["containers"][0]
    return found


ZONES = {
    "broker": {
        "zones": [
            {"name": "a", "zone": "eu-1a", "firstBrokerId": 100, "replicas": 2},
            {"name": "b", "zone": "eu-1b", "firstBrokerId": 200, "replicas": 1},
        ]
    }
}


def test_a_zone_is_a_stateful_set_and_a_rack(helm: Helm) -> None:
    found = by_name(helm.template(ZONES))
    one = found["StatefulSet/tidelog-broker-a"]["spec"]
    assert (one["ordinals"], one["replicas"]) == ({"start": 100}, 2)
    assert one["template"]["spec"]["nodeSelector"] == {"topology.kubernetes.io/zone": "eu-1a"}
    env = container(found["StatefulSet/tidelog-broker-a"])["env"]
    assert {"name": "TIDELOG_RACK", "value": "eu-1a"} in env
    # Two StatefulSets would be rolled at once.
    assert one["updateStrategy"] == {"type": "OnDelete"}
    labels = [found[f"StatefulSet/tidelog-broker-{zone}"]["spec"]["selector"] for zone in "ab"]
    assert labels[0] != labels[1]
    # One budget for the brokers of all zones.
    budget = found["PodDisruptionBudget/tidelog-broker"]["spec"]["selector"]["matchLabels"]
    assert all(budget.items() <= label["matchLabels"].items() for label in labels)
    bootstrap = {
        e["name"]: e.get("value") for e in container(found["Deployment/tidelog-admin-api"])["env"]
    }
    assert bootstrap["TIDELOG_BOOTSTRAP"] == ",".join(
        f"tidelog-broker-{pod}.tidelog-brokers:7500" for pod in ("a-100", "a-101", "b-200")
    )


@pytest.mark.parametrize("zones", [{}, ZONES], ids=["nodes", "zones"])
@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort"])
def test_each_broker_has_an_external_address_of_its_own(
    helm: Helm, zones: Document, kind: str
) -> None:
    external = {"enabled": True, "type": kind, "address": "broker-{id}.example.org:{port}"}
    found = by_name(helm.template(zones | {"external": external}))
    files = found["ConfigMap/tidelog-external"]["data"]
    ids = [100, 101, 200] if zones else [0, 1, 2]
    assert list(files) == [f"broker-{broker_id}.toml" for broker_id in ids]
    for position, broker_id in enumerate(ids):
        service = found[f"Service/tidelog-external-{broker_id}"]["spec"]
        (port,) = service["ports"]
        reached = port["nodePort"] if kind == "NodePort" else port["port"]
        assert reached == (30_500 + position if kind == "NodePort" else 9_500)
        address = f"broker-{broker_id}.example.org:{reached}"
        assert files[f"broker-{broker_id}.toml"] == f'external_advertised_address = "{address}"\n'
        pod = service["selector"]["statefulset.kubernetes.io/pod-name"]
        assert pod.endswith(f"-{broker_id}")


CONTROLLER = "StatefulSet/tidelog-controller"


@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort"])
def test_each_controller_has_an_external_address_of_its_own(helm: Helm, kind: str) -> None:
    controllers = {
        "address": "controller-{id}.example.org:{port}",
        "annotations": {"hostname": "controller-{id}.example.org"},
    }
    external = {
        "enabled": True,
        "type": kind,
        "address": "broker-{id}.example.org:{port}",
        "controllers": controllers,
        "sourceRanges": ["192.0.2.0/24"],
    }
    found = by_name(helm.template({"external": external}))
    files = found["ConfigMap/tidelog-external"]["data"]
    assert [name for name in files if name.startswith("controller")] == [
        "controller-0.toml",
        "controller-1.toml",
    ]
    for number in range(2):
        service = found[f"Service/tidelog-external-controller-{number}"]
        (port,) = service["spec"]["ports"]
        reached = port["nodePort"] if kind == "NodePort" else port["port"]
        assert reached == (30_400 + number if kind == "NodePort" else 9_400)
        address = f"controller-{number}.example.org:{reached}"
        assert files[f"controller-{number}.toml"] == f'external_advertised_address = "{address}"\n'
        annotations = {"hostname": f"controller-{number}.example.org"}
        assert service["metadata"]["annotations"] == annotations
        pod = {"statefulset.kubernetes.io/pod-name": f"tidelog-controller-{number}"}
        assert service["spec"]["selector"] == pod
    # Where they listen, the policy lets clients outside in.
    ports = {
        entry["name"]: entry["containerPort"] for entry in container(found[CONTROLLER])["ports"]
    }
    env = {entry["name"]: entry.get("value") for entry in container(found[CONTROLLER])["env"]}
    assert env["TIDELOG_EXTERNAL_LISTEN"] == f"0.0.0.0:{ports['external']}"
    assert found["NetworkPolicy/tidelog-controller"]["spec"]["ingress"][-1] == {
        "from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
        "ports": [{"port": ports["external"], "protocol": "TCP"}],
    }


def test_the_files_of_external_addresses_are_settings_that_services_accept(
    helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    external = {
        "enabled": True,
        "address": "broker-{id}.example.org:{port}",
        "controllers": {"address": "controller-{id}.example.org:{port}"},
    }
    found = by_name(helm.template({"external": external}))
    for name, content in found["ConfigMap/tidelog-external"]["data"].items():
        (tmp_path / name).write_text(content)
    for role, model in (("broker", BrokerConfig), ("controller", ControllerConfig)):
        workload = container(found[f"StatefulSet/tidelog-{role}"])
        (mount,) = [one for one in workload["volumeMounts"] if one["name"] == "external"]
        env = {entry["name"]: entry.get("value") for entry in workload["env"]}
        path = env["TIDELOG_CONFIG"].replace(f"$(TIDELOG_{role.upper()}_ID)", "1")
        with monkeypatch.context() as variables:
            variables.setenv("TIDELOG_CONFIG", path.replace(mount["mountPath"], str(tmp_path)))
            variables.setenv("TIDELOG_EXTERNAL_LISTEN", env["TIDELOG_EXTERNAL_LISTEN"])
            variables.setenv(f"TIDELOG_{role.upper()}_ID", "1")
            variables.setenv("TIDELOG_ADVERTISED_ADDRESS", "pod:7500")
            variables.setenv("TIDELOG_DATA_DIR", str(tmp_path))
            config = load(model, [])
        port = {"broker": 9_500, "controller": 9_400}[role]
        assert config.external_address == f"{role}-1.example.org:{port}"


@pytest.mark.parametrize(
    ("changed", "restarted"),
    [
        ({"port": 9_501}, ["broker"]),
        ({"type": "NodePort"}, ["broker", "controller"]),
        ({"controllers": {"port": 9_401}}, ["controller"]),
        ({"controllers": {"address": ""}}, ["controller"]),
        ({"controllers": {"annotations": {"a": "b"}}}, []),
        ({"annotations": {"a": "b"}}, []),
    ],
)
def test_services_restart_if_their_external_address_changes(
    helm: Helm, changed: Document, restarted: list[str]
) -> None:
    """They read it when they start."""
    before: Document = {
        "enabled": True,
        "address": "b-{id}:{port}",
        "controllers": {"address": "c-{id}:{port}"},
    }
    after = before | changed
    after["controllers"] = before["controllers"] | changed.get("controllers", {})
    found = [by_name(helm.template({"external": external})) for external in (before, after)]
    pods = {
        role: [one[f"StatefulSet/tidelog-{role}"]["spec"]["template"] for one in found]
        for role in ("broker", "controller")
    }
    assert [role for role, (old, new) in pods.items() if old != new] == restarted


def test_dashboards_and_alerts_are_those_of_the_repository(helm: Helm) -> None:
    values = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
    found = by_name(helm.template(values))
    alerts = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    assert found["PrometheusRule/tidelog"]["spec"] == alerts
    dashboards = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
    assert len(dashboards) >= 5
    for path in dashboards:
        config = found[f"ConfigMap/tidelog-dashboard-{path.stem}"]
        assert config["data"] == {path.name: path.read_text()}


@pytest.mark.parametrize(
    ("present", "requested", "rendered"),
    [
        ("", "50Gi", "50Gi"),
        ("50Gi", "50Gi", "50Gi"),
        # The claim template cannot change; the claims are grown by hand.
        ("50Gi", "1Ti", "50Gi"),
        ("1024Gi", "1Ti", "1024Gi"),
        # Of another unit than the chart writes.
        ("50G", "50Gi", "50G"),
        ("51Gi", "50Gi", None),
        ("1Ti", "1023Gi", None),
    ],
)
def test_a_volume_is_never_shrunk(
    helm: Helm, tmp_path: Path, present: str, requested: str, rendered: str | None
) -> None:
    """The comparison itself: `lookup` finds nothing without a Kubernetes API."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: probe, version: 0.1.0}")
    shutil.copy(CHART / "templates" / "_helpers.tpl", tmp_path / "templates")
    (tmp_path / "templates" / "probe.yaml").write_text(
        'size: {{ include "tidelog.storage" (dict "name" "set" "present" .Values.present '
        '"requested" .Values.requested) }}\n'
    )
    values = {"present": present, "requested": requested}
    done = helm.run("template", "probe", str(tmp_path), values=values)
    if rendered is None:
        assert "a volume cannot shrink; set at least" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert yaml.safe_load(done.stdout) == {"size": rendered}
