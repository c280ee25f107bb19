"""Checks deploy/kubernetes, which is the Helm chart rendered by `make chart`, against the schemas
of Kubernetes and the requirements of the services."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tidelog_broker.broker_config import BrokerConfig
from tidelog_controller.controller_config import ControllerConfig
from tidelog_runtime.config import ENVIRONMENT_PREFIX, ServiceConfig
from unit.cli.test_quoted_commands import parse

MANIFESTS = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
# The pod index is a label since Kubernetes 1.28.
VERSIONS = ("1.28", "1.37")
SERVICE_MONITOR, RULE = "ServiceMonitor", "PrometheusRule"


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    kustomization = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
    for name in kustomization["resources"]:
        for document in yaml.safe_load_all((MANIFESTS / name).read_text()):
            yield f"{document['kind']}/{document['metadata']['name']}", document


ALL = dict(documents())
OWN_KINDS = {
    name: found for name, found in ALL.items() if found["kind"] not in (SERVICE_MONITOR, RULE)
}
WORKLOADS = {
    name: found for name, found in ALL.items() if found["kind"] in ("StatefulSet", "Deployment")
}


def container(name: str) -> dict[str, Any]:
    found: dict[str, Any] = ALL[name]["spec"]["template"]["spec"]["containers"][0]
    return found


def settings(name: str) -> dict[str, str]:
    """The settings from the variables of a workload or from the shared configuration."""
    given = {entry["name"]: entry.get("value", "") for entry in container(name)["env"]}
    return given | (ALL["ConfigMap/tidelog"]["data"] if "envFrom" in container(name) else {})


def test_every_manifest_is_listed() -> None:
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    present = {path.name for path in MANIFESTS.glob("*.yaml")}
    present -= {"kustomization.yaml", "values.yaml"}
    assert set(listed) == present


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OWN_KINDS)
def test_a_manifest_is_valid(name: str, version: str) -> None:
    kubernetes_validate.validate(OWN_KINDS[name], version, strict=True)


def test_a_misspelt_field_is_found() -> None:
    broken = json.loads(json.dumps(ALL["StatefulSet/tidelog-broker"]))
    broken["spec"]["template"]["spec"]["terminationGracePeriod"] = 60
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_the_alerts_are_valid() -> None:
    schema = json.loads((MANIFESTS / "schemas" / "prometheusrule.json").read_text())
    rule = ALL[f"{RULE}/tidelog"]
    jsonschema.validate(rule, schema)
    broken = json.loads(json.dumps(rule))
    broken["spec"]["groups"][0]["rules"][0]["label"] = {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


def test_the_alerts_are_those_of_prometheus() -> None:
    alerts = yaml.safe_load((MANIFESTS.parent / "prometheus" / "alerts.yml").read_text())
    assert ALL[f"{RULE}/tidelog"]["spec"] == alerts


def test_targets_have_the_job_that_alerts_name() -> None:
    monitor = ALL[f"{SERVICE_MONITOR}/tidelog"]["spec"]
    services = [found for found in ALL.values() if found["kind"] == "Service"]
    jobs = {service["metadata"]["labels"][monitor["jobLabel"]] for service in services}
    assert jobs == {"tidelog"}


def test_a_stopping_broker_waits_within_its_grace_period() -> None:
    pod = ALL["StatefulSet/tidelog-broker"]["spec"]["template"]["spec"]
    command = container("StatefulSet/tidelog-broker")["lifecycle"]["preStop"]["exec"]["command"]
    *_, waited = command[-1].split()
    stop_ms = BrokerConfig.model_fields["shutdown_timeout_ms"].default
    assert int(waited) + stop_ms / 1000 < pod["terminationGracePeriodSeconds"]


def test_the_wait_of_a_stopping_broker_is_a_command_that_exists() -> None:
    command = container("StatefulSet/tidelog-broker")["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:2] == ["/bin/sh", "-c"]
    typed = command[2].removeprefix("exec ").replace('"$TIDELOG_BROKER_ID"', "1")
    parse(typed)


def test_only_named_peers_may_connect() -> None:
    """Every port of a pod is in its policy, and no rule is without peers."""
    for component, workload in (
        ("broker", "StatefulSet/tidelog-broker"),
        ("controller", "StatefulSet/tidelog-controller"),
        ("admin-api", "Deployment/tidelog-admin-api"),
    ):
        policy = ALL[f"NetworkPolicy/tidelog-{component}"]["spec"]
        labels = WORKLOADS[workload]["spec"]["template"]["metadata"]["labels"]
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()
        assert all(rule["from"] for rule in policy["ingress"])
        opened = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
        assert opened == [port["containerPort"] for port in container(workload)["ports"]]


def test_the_service_monitor_is_valid() -> None:
    schema = json.loads((MANIFESTS / "schemas" / "servicemonitor.json").read_text())
    monitor = ALL[f"{SERVICE_MONITOR}/tidelog"]
    jsonschema.validate(monitor, schema)
    broken = json.loads(json.dumps(monitor))
    broken["spec"]["endpoints"][0]["honourLabels"] = True
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


def test_the_service_monitor_finds_the_ports_of_services() -> None:
    monitor = ALL[f"{SERVICE_MONITOR}/tidelog"]
    expected = {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}
    labels = monitor["spec"]["selector"]["matchLabels"].items()
    scraped = set()
    for service in (found for found in ALL.values() if found["kind"] == "Service"):
        assert labels <= service["metadata"]["labels"].items()
        ports = expected & {port["name"] for port in service["spec"]["ports"]}
        assert len(ports) == 1, service["metadata"]["name"]
        scraped |= ports
    assert scraped == expected


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pod_is_confined(name: str) -> None:
    pod = WORKLOADS[name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert container(name)["securityContext"]["readOnlyRootFilesystem"] is True
    # Otherwise variables with the names of services would become settings.
    assert pod["enableServiceLinks"] is False


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_has_a_disruption_budget_and_a_service(name: str) -> None:
    labels = WORKLOADS[name]["spec"]["template"]["metadata"]["labels"]
    budgets = [
        found
        for found in ALL.values()
        if found["kind"] == "PodDisruptionBudget"
        and found["spec"]["selector"]["matchLabels"] == labels
    ]
    assert [budget["spec"]["maxUnavailable"] for budget in budgets] == [1]
    selectors = [f["spec"]["selector"] for f in ALL.values() if f["kind"] == "Service"]
    assert labels in selectors


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("StatefulSet/tidelog-broker", BrokerConfig),
        ("StatefulSet/tidelog-controller", ControllerConfig),
    ],
)
def test_only_existing_settings_are_set(name: str, config: type[ServiceConfig]) -> None:
    own = {n for n in settings(name) if n.startswith(ENVIRONMENT_PREFIX)}
    known = {ENVIRONMENT_PREFIX + field.upper() for field in config.model_fields}
    assert own <= known
    assert f"{ENVIRONMENT_PREFIX}ADVERTISED_ADDRESS" in own


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_services_publish_pods_that_are_not_ready(role: str) -> None:
    """A broker is ready only after a controller has reached it, so its address must resolve
    before."""
    service = ALL[f"Service/tidelog-{role}s"]
    assert service["spec"]["publishNotReadyAddresses"] is True
    advertised = settings(f"StatefulSet/tidelog-{role}")["TIDELOG_ADVERTISED_ADDRESS"]
    port = next(port["port"] for port in service["spec"]["ports"] if port["name"] == "grpc")
    assert advertised == f"$(POD_NAME).tidelog-{role}s.$(POD_NAMESPACE).svc:{port}"


def test_the_gateway_is_configured_with_existing_pods() -> None:
    variables = settings("Deployment/tidelog-admin-api")
    for setting, role in (("TIDELOG_BOOTSTRAP", "broker"), ("TIDELOG_CONTROLLERS", "controller")):
        replicas = ALL[f"StatefulSet/tidelog-{role}"]["spec"]["replicas"]
        port = container(f"StatefulSet/tidelog-{role}")["ports"][0]["containerPort"]
        addresses = [f"tidelog-{role}-{i}.tidelog-{role}s:{port}" for i in range(replicas)]
        assert variables[setting].split(",") == addresses
