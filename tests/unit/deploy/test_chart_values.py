"""The values of the Helm chart: their schema, defaults and reference. `make chart-test` renders the
chart with the same values; these checks need no helm."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
import yaml

from chart.value_sets import MISSPELT, misspelt, valid_sets
from tidelog_admin_api.config import AdminApiConfig
from tidelog_broker.broker_config import BrokerConfig
from tidelog_controller.controller_config import ControllerConfig
from tidelog_docs.chart_schema import CHART, SCHEMA, SET_BY_THE_CHART, content, schema
from tidelog_docs.chart_values import chart_values, leaves

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
ALL_SETTINGS = {
    name
    for model in (BrokerConfig, ControllerConfig, AdminApiConfig)
    for name in model.model_fields
}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As helm merges values: mappings by key, anything else as a whole."""
    result = copy.deepcopy(base)
    for name, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merged(result[name], value) if both else value
    return result


def test_the_schema_is_the_generated_one() -> None:
    assert SCHEMA.read_text() == content(), "run `make chart`"


def test_the_schema_is_valid() -> None:
    jsonschema.Draft7Validator.check_schema(schema())


def test_generated_values_are_accepted() -> None:
    validator = jsonschema.Draft7Validator(schema())
    for values in valid_sets():
        validator.validate(merged(DEFAULTS, values))


@pytest.mark.parametrize("path", MISSPELT)
def test_a_misspelt_value_is_rejected(path: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(DEFAULTS, misspelt(path)), schema())


def test_every_value_has_a_default_and_a_meaning() -> None:
    for path, leaf, _ in leaves(schema(), DEFAULTS):
        assert leaf["description"], path
        if path == "global" or "[]" in path:
            continue
        found = DEFAULTS
        for name in path.split("."):
            assert name in found, f"values.yaml lacks {path}"
            found = found[name]


def test_settings_that_the_chart_sets_exist() -> None:
    assert SET_BY_THE_CHART <= ALL_SETTINGS


@pytest.mark.parametrize(
    ("part", "model"),
    [("broker", BrokerConfig), ("controller", ControllerConfig), ("gateway", AdminApiConfig)],
)
def test_all_other_settings_can_be_given(part: str, model: type) -> None:
    known = set(model.model_fields)  # type: ignore[attr-defined]
    accepted = schema()["properties"][part]["properties"]["settings"]["properties"]
    assert set(accepted) == known - SET_BY_THE_CHART
    assert not [name for name, found in accepted.items() if "description" not in found]


def test_the_reference_lists_every_value_with_its_default() -> None:
    table = chart_values()
    assert '| `broker.storage.size` | `"50Gi"` | text | size; it can never be lowered |' in table
    assert "| `broker.zones[].firstBrokerId` |  | 0 to 900,000 |" in table
    assert '| `external.type` | `"LoadBalancer"` | `LoadBalancer`, `NodePort` |' in table
    assert len(table.splitlines()) == 2 + len(list(leaves(schema(), DEFAULTS)))


def test_the_chart_has_the_version_of_the_package() -> None:
    from tidelog.version import installed_version

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == installed_version()


def test_files_of_the_chart_are_those_of_the_repository() -> None:
    """Copies: links are texts in checkouts without symbolic links."""
    deploy = CHART.parents[1]
    expected = {
        "alerts.yml": (deploy / "prometheus" / "alerts.yml").read_text(),
        **{
            f"dashboards/{path.name}": path.read_text()
            for path in (deploy / "grafana" / "dashboards").iterdir()
        },
    }
    files = CHART / "files"
    found = {
        str(path.relative_to(files)): path.read_text()
        for path in files.rglob("*")
        if not path.is_dir()
    }
    assert found == expected, "run `make chart-files`"
    assert not any(path.is_symlink() for path in (files, *files.rglob("*")))


def test_the_schema_is_readable_json() -> None:
    assert json.loads(SCHEMA.read_text())["additionalProperties"] is False
