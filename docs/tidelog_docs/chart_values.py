"""The values of the Helm chart: meanings from its schema, defaults from its values.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tidelog_docs.chart_schema import CHART, schema
from tidelog_docs.markdown import cell, code, table

# Settings of services have tables of their own.
_SETTINGS = "settings"


def chart_values() -> str:
    """Returns the table of all values."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    return table(
        ("value", "default", "values", "meaning"),
        (
            (code(path), default(found), valid(leaf), cell(leaf["description"]))
            for path, leaf, found in leaves(schema(), defaults)
        ),
    )


def leaves(
    node: Mapping[str, Any], defaults: Any, path: str = ""
) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Yields path, schema and default of each value; entries of lists have none."""
    for name, child in node["properties"].items():
        below = f"{path}.{name}" if path else name
        default = defaults.get(name) if isinstance(defaults, dict) else None
        if "properties" in child and name != _SETTINGS:
            yield from leaves(child, default, below)
            continue
        yield below, child, default
        items = child.get("items", {})
        if items.get("required"):
            yield from leaves(items, None, f"{below}[]")


def default(value: Any) -> str:
    return "" if value in (None, "", [], {}) else code(json.dumps(value))


def valid(leaf: Mapping[str, Any]) -> str:
    if "enum" in leaf:
        return ", ".join(code(str(value)) for value in leaf["enum"])
    if leaf.get("type") == "integer":
        return f"{leaf['minimum']:,} to {leaf['maximum']:,}"
    return {"boolean": "`true`, `false`", "array": "list", "object": "mapping"}.get(
        leaf["type"], "text"
    )
