"""Static checks of docker-compose.yml and of the images that it builds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import tidelog
from compose.engine import base_images
from tidelog_admin_api.config import AdminApiConfig
from tidelog_broker.broker_config import BrokerConfig
from tidelog_controller.controller_config import ControllerConfig
from tidelog_runtime.config import ENVIRONMENT_PREFIX, ServiceConfig

ROOT = Path(__file__).resolve().parents[3]
SERVICES = ("broker", "controller", "admin-api")
IMAGES = (*SERVICES, "pipeline")
# Jobs, which have no listener.
JOBS = {"archive", "lag", "pipeline"}
# One-off containers, and those without a health check program.
WITHOUT_HEALTH_CHECK = {"tools", "grafana", *JOBS}
# Programs that a health check may run: real images have no shell and no curl.
OWN_PROGRAMS = {"python", "/usr/local/bin/etcdctl", "/bin/promtool"}


def dockerfile(service: str) -> str:
    return (ROOT / "services" / service / "Dockerfile").read_text()


def instructions(text: str) -> str:
    return re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def test_the_build_stage_is_the_same_in_all_images() -> None:
    stages = {re.split(r"FROM \S+(?: AS spark)?\n", instructions(dockerfile(s)))[0] for s in IMAGES}
    assert len(stages) == 1
    assert "AS build" in stages.pop()


@pytest.mark.parametrize("service", IMAGES)
def test_image_labels_have_the_package_version(service: str) -> None:
    assert f"ARG VERSION={tidelog.__version__}\n" in dockerfile(service)


@pytest.mark.parametrize("service", IMAGES)
def test_images_are_built_without_buildkit(service: str) -> None:
    text = dockerfile(service)
    assert not text.startswith("# syntax")
    assert "--mount" not in text
    assert "<<" not in text


@pytest.mark.parametrize("service", IMAGES)
def test_an_image_runs_as_a_numbered_user(service: str) -> None:
    """Kubernetes checks `runAsNonRoot` only for numeric user ids."""
    final = dockerfile(service).rpartition("FROM ")[2]
    assert re.findall(r"^USER (.*)$", final, re.MULTILINE) == ["10001:10001"]


def pins(lock: str) -> dict[str, str]:
    found = re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
    assert found
    return dict(found)


@pytest.mark.parametrize(
    "lock", ["requirements-services.lock", "requirements-build.lock", "requirements-local.lock"]
)
def test_images_and_local_clusters_have_the_tested_versions(lock: str) -> None:
    tested = pins("requirements.lock")
    assert {name: tested.get(name) for name in pins(lock)} == pins(lock)


def test_spark_and_service_locks_have_the_same_versions() -> None:
    """Both are installed into one virtual environment."""
    services, spark = pins("requirements-services.lock"), pins("requirements-spark.lock")
    assert {name: services[name] for name in spark if name in services} == {
        name: version for name, version in spark.items() if name in services
    }


def test_ports_are_published_only_on_loopback(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_external_images_are_pinned(services: dict[str, dict[str, Any]]) -> None:
    foreign = {s["image"] for s in services.values() if "build" not in s}
    assert [image for image in sorted(foreign) if not re.search(r":v?\d+\.\d+\.\d+$", image)] == []


def test_every_image_in_use_has_a_stand_in(
    services: dict[str, dict[str, Any]],
) -> None:
    """Grafana is the exception and has no stand-in."""
    used = {
        s["image"] for s in services.values() if "build" not in s and "grafana" not in s["image"]
    }
    bases = {re.findall(r"^ARG BASE_IMAGE=(.*)$", dockerfile(s), re.MULTILINE)[0] for s in IMAGES}
    found = base_images()
    assert set(found) == {"python", "etcd", "prometheus"}
    assert set(found.values()) == used | bases


def test_every_service_has_a_health_check_program(
    services: dict[str, dict[str, Any]],
) -> None:
    programs: dict[str, str] = {}
    for name, service in services.items():
        if name in WITHOUT_HEALTH_CHECK:
            continue
        if "healthcheck" in service:
            programs[name] = service["healthcheck"]["test"][1]
        else:
            text = (ROOT / service["build"]["dockerfile"]).read_text()
            found = re.search(r"HEALTHCHECK[^\[]*(\[.*\])", text)
            assert found, f"{name} has no health check"
            programs[name] = json.loads(found[1])[0]
    assert set(programs.values()) <= OWN_PROGRAMS


def test_every_service_is_confined(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["mem_limit"], name
        assert service["cpus"], name
        assert service["restart"] in ("unless-stopped", "no"), name


@pytest.mark.parametrize(
    ("role", "config"),
    [
        ("broker", BrokerConfig),
        ("controller", ControllerConfig),
        ("admin-api", AdminApiConfig),
    ],
)
def test_only_existing_settings_are_set(
    role: str, config: type[ServiceConfig], services: dict[str, dict[str, Any]]
) -> None:
    """Services silently ignore unknown variables."""
    known = {ENVIRONMENT_PREFIX + field.upper() for field in config.model_fields}
    for service in (s for name, s in services.items() if name.startswith(role)):
        assert set(service["environment"]) <= known
    in_image = set(re.findall(rf"\b({ENVIRONMENT_PREFIX}\w+)=", dockerfile(role)))
    assert in_image
    assert in_image <= known


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_clients_on_this_machine_get_the_published_ports(
    role: str, services: dict[str, dict[str, Any]]
) -> None:
    found = {name: s for name, s in services.items() if name.startswith(f"{role}-")}
    assert found
    for service in found.values():
        host = service["environment"]["TIDELOG_EXTERNAL_ADVERTISED_ADDRESS"]
        port = service["environment"]["TIDELOG_EXTERNAL_LISTEN"].rpartition(":")[2]
        assert service["ports"] == [f"{host}:{port}"]
        # The default bootstrap of clients and `make up`.
        assert f":-{port}}}" in host


def test_brokers_are_in_two_racks(services: dict[str, dict[str, Any]]) -> None:
    brokers = [s["environment"] for name, s in services.items() if name.startswith("broker-")]
    assert len(brokers) == 3
    assert len({environment["TIDELOG_RACK"] for environment in brokers}) == 2


def test_the_stop_grace_period_exceeds_that_of_a_broker(
    services: dict[str, dict[str, Any]],
) -> None:
    shutdown_ms = BrokerConfig.model_fields["shutdown_timeout_ms"].default
    grace = services["broker-1"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) * 1_000 > shutdown_ms


def test_prometheus_scrapes_the_drivers_that_serve_metrics(
    services: dict[str, dict[str, Any]],
) -> None:
    (listens,) = [
        argument.removeprefix("--metrics-listen=")
        for argument in services["archive"]["command"]
        if argument.startswith("--metrics-listen=")
    ]
    kept, mounted = "./deploy/compose/prometheus-spark.json", "/etc/prometheus/spark/compose.json"
    assert f"{kept}:{mounted}:ro" in services["prometheus"]["volumes"]
    (document,) = json.loads((ROOT / kept).read_text())
    assert document["targets"] == [f"archive:{listens.rpartition(':')[2]}"]
    assert set(document["labels"]) == {"cluster", "service"}


def test_prometheus_scrapes_every_service_under_its_own_name(
    services: dict[str, dict[str, Any]],
) -> None:
    targets = json.loads((ROOT / "deploy/compose/prometheus-targets.json").read_text())
    scraped = {target["labels"]["service"]: target["targets"][0] for target in targets}
    own = {name for name, service in services.items() if "build" in service} - {"tools", *JOBS}
    assert set(scraped) == own
    assert {service: address.partition(":")[0] for service, address in scraped.items()} == {
        service: service for service in own
    }


def test_mounted_repository_files_exist(compose: dict[str, Any]) -> None:
    mounts = [m for s in compose["services"].values() for m in s.get("volumes", [])]
    from_here = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert from_here
    assert [path for path in from_here if not (ROOT / path).exists()] == []
    named = {mount.split(":")[0] for mount in mounts} - set(from_here)
    assert named == set(compose["volumes"])
