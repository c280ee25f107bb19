"""What Grafana finds at startup in the container of docker-compose.yml. No suite runs Grafana."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PROVISIONING = ROOT / "deploy/grafana/provisioning"
# The default path of its image; GF_PATHS_PROVISIONING would change it.
LOOKS_IN = PurePosixPath("/etc/grafana/provisioning")
WRITES_TO = PurePosixPath("/var/lib/grafana")
# The directories there that belong to Grafana itself.
KINDS = {"access-control", "alerting", "dashboards", "datasources", "plugins"}
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
    "services"
]
GRAFANA = SERVICES["grafana"]
ENVIRONMENT: dict[str, str] = GRAFANA["environment"]
# Each mount target and its source.
MOUNTS = {
    PurePosixPath(target): source
    for source, target, *_ in (mount.split(":") for mount in GRAFANA["volumes"])
}
DASHBOARDS = {
    path.name: json.loads(path.read_text())
    for path in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))
}


def provisioned(kind: str) -> list[dict[str, Any]]:
    """The content of the files in a directory, with Grafana's variable substitution."""
    listed = []
    for path in sorted((PROVISIONING / kind).iterdir()):
        text = re.sub(r"\$\{(\w+)\}", lambda found: ENVIRONMENT[found[1]], path.read_text())
        content = yaml.safe_load(text)
        assert content["apiVersion"] == 1, path
        listed += content["providers" if kind == "dashboards" else kind]
    return listed


def data_sources_of(part: object) -> Iterator[dict[str, str]]:
    if isinstance(part, dict):
        if isinstance(part.get("datasource"), dict):
            yield part["datasource"]
        part = list(part.values())
    if isinstance(part, list):
        for child in part:
            yield from data_sources_of(child)


def test_provisioning_files_are_where_grafana_reads_them() -> None:
    assert "GF_PATHS_PROVISIONING" not in ENVIRONMENT
    assert ROOT / MOUNTS[LOOKS_IN] == PROVISIONING
    files = list(PROVISIONING.rglob("*.yml"))
    assert {path.relative_to(PROVISIONING).parts[0] for path in files} <= KINDS
    # Grafana ignores other file names.
    assert [p for p in PROVISIONING.rglob("*") if p.is_file() and p not in files] == []


def test_files_and_container_use_the_same_variables() -> None:
    texts = [path.read_text() for path in PROVISIONING.rglob("*.yml")]
    variables = {name for text in texts for name in re.findall(r"\$\{(\w+)\}", text)}
    assert variables
    assert variables == {name for name in ENVIRONMENT if not name.startswith("GF_")}


def test_dashboards_are_in_the_provisioned_directory() -> None:
    (provider,) = provisioned("dashboards")
    assert provider["type"] == "file"
    directory = ROOT / MOUNTS[PurePosixPath(provider["options"]["path"])]
    assert {path.name for path in directory.glob("*.json")} == set(DASHBOARDS)
    assert DASHBOARDS


def test_the_data_source_is_the_prometheus_of_the_compose_file() -> None:
    (source,) = provisioned("datasources")
    (listens,) = [
        argument.rpartition(":")[2]
        for argument in SERVICES["prometheus"]["command"]
        if argument.startswith("--web.listen-address=")
    ]
    assert (source["type"], source["access"]) == ("prometheus", "proxy")
    assert source["url"] == f"http://prometheus:{listens}"
    assert SERVICES["prometheus"]["profiles"] == GRAFANA["profiles"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboards_use_a_provisioned_data_source(name: str) -> None:
    """A dashboard names a uid, or a variable that offers data sources of its type, one of them
    the default."""
    uids = {source["uid"]: source["type"] for source in provisioned("datasources")}
    defaults = {s["type"] for s in provisioned("datasources") if s["isDefault"]}
    offered = {
        f"${{{variable['name']}}}": variable["query"]
        for variable in DASHBOARDS[name]["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert set(offered.values()) <= defaults
    sources = list(data_sources_of(DASHBOARDS[name]))
    assert sources
    known = uids | offered
    assert [source for source in sources if known.get(source["uid"]) != source["type"]] == []


def test_visitors_may_view_and_logins_are_disabled() -> None:
    """The default admin account is not created; provisioning needs none."""
    assert ENVIRONMENT["GF_AUTH_ANONYMOUS_ENABLED"] == "true"
    assert ENVIRONMENT["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert ENVIRONMENT["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


def test_grafana_writes_only_to_a_volume() -> None:
    """The root file system is read-only, and logs go to the console."""
    assert GRAFANA["read_only"] is True
    assert not MOUNTS[WRITES_TO].startswith(".")
    assert not {"GF_PATHS_DATA", "GF_PATHS_PLUGINS", "GF_LOG_MODE"} & set(ENVIRONMENT)
