"""Validates compose files against the schema by which Compose v2 validates them.

Compose v2 is not on every machine: tests/compose runs the files with it where it is installed,
else with docker-compose 1.29.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from compose.stack import BROKERS, ETCD, OWN_SERVICES
from faults.compose_override import override

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text()
SCHEMA = json.loads((ROOT / "deploy/compose/schemas/compose-spec.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
DISKS = {broker: Path("/disks") / broker for broker in BROKERS}
CLOCKS = {broker: Path("/clocks") / broker for broker in BROKERS}
OVERRIDES = {
    "disks": override(DISKS, (*ETCD, *OWN_SERVICES), None, ""),
    "clocks": override(DISKS, (*ETCD, *OWN_SERVICES), CLOCKS, "tidelog-broker:faketime"),
    "user": override(DISKS, (*ETCD, *OWN_SERVICES), None, "", user="1000:1000"),
}


def loaded(text: str) -> dict[str, Any]:
    """The compose file with default values of variables, which Compose sets before validation."""
    interpolated = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    assert "$" not in interpolated, "a variable without a default"
    found: dict[str, Any] = yaml.safe_load(interpolated)
    return found


def findings(document: dict[str, Any]) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(document)]


def keys_given_twice(node: yaml.Node | None) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        yield from {key for key in keys if keys.count(key) > 1}
    if isinstance(node, yaml.CollectionNode):
        for child in node.value:
            for part in child if isinstance(child, tuple) else (child,):
                yield from keys_given_twice(part)


def test_the_compose_file_is_valid() -> None:
    assert findings(loaded(TEXT)) == []


@pytest.mark.parametrize("name", OVERRIDES)
def test_the_file_with_fault_overrides_is_valid(name: str) -> None:
    assert findings(loaded(OVERRIDES[name])) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("mem_limitt", "1g"), ("cpus", [1]), ("healthcheck", {"tests": []}), ("restart", True)],
)
def test_an_invalid_field_is_found(field: str, value: object) -> None:
    broken = copy.deepcopy(loaded(TEXT))
    broken["services"]["prometheus"][field] = value
    found = findings(broken)
    assert found
    assert all(finding.startswith("$.services.prometheus") for finding in found)


def test_no_key_is_given_twice() -> None:
    """docker-compose 1.29 takes the last duplicate; v2 rejects the file."""
    assert list(keys_given_twice(yaml.compose(TEXT))) == []
    twice = yaml.compose("services:\n  a: {image: x}\n  b:\n    - {c: 1, d: 2, c: 3}\n")
    assert list(keys_given_twice(twice)) == ["c"]


def test_services_depend_on_existing_services() -> None:
    """The schema does not require this; v2 rejects the file if a service is missing."""
    services = loaded(TEXT)["services"]
    awaited = {name for service in services.values() for name in service.get("depends_on", {})}
    assert awaited
    assert awaited <= set(services)
