"""Metrics, events and runbooks of alerts, from the catalogue, the enumerations and the rules."""

from __future__ import annotations

import enum
import inspect
import io
import re
import tokenize
from pathlib import Path
from typing import Any

import yaml

from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog_docs.markdown import block, cell, code, prose, table
from tidelog_runtime.telemetry.metrics.catalogue import CATALOGUE

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
# A label or the value, and how Prometheus formats it.
_PLACEHOLDER = re.compile(r"\{\{ *\$(?:labels\.)?(\w+)[^}]*\}\}")


def metrics(service: str) -> str:
    return table(
        ("metric", "type", "labels", "meaning and what to do"),
        (
            (
                code(metric.name),
                metric.type.value,
                ", ".join(map(code, metric.labels)),
                cell(metric.help),
            )
            for metric in CATALOGUE[service]
        ),
    )


def events(name: str) -> str:
    of: type[enum.Enum] = {"kinds": Kind, "stages": Stage, "causes": Cause}[name]
    remarks = _remarks(of)
    return table(
        (name.removesuffix("s"), "meaning"),
        ((code(m.value), cell(remarks.get(m.name, ""))) for m in of if m.value),
    )


def _remarks(of: type[enum.Enum]) -> dict[str, str]:
    """Returns the comment behind each member, else its name in words."""
    found = {member.name: member.name.lower().replace("_", " ") for member in of}
    line: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(of)).readline):
        line.append(token)
        if token.type == tokenize.COMMENT and line[0].string in found:
            found[line[0].string] = token.string.removeprefix("#").strip()
        if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT):
            line = []
    return found


def event_fields() -> str:
    remarks = inspect.cleandoc(StateChange.__doc__ or "").split("\n- ")
    meanings = dict(remark[1:].split("`: ", 1) for remark in remarks[1:])
    return table(
        ("field", "type", "meaning"),
        (
            (code(name), cell(kind.__forward_arg__), cell(meanings.get(name, "")))
            for name, kind in StateChange.__annotations__.items()
        ),
    )


def alerts() -> list[tuple[str, list[dict[str, Any]]]]:
    """Returns the rules by the name of their group."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [(group["name"], [r for r in group["rules"] if "alert" in r]) for group in groups]


def runbooks() -> str:
    parts = []
    for group, rules in alerts():
        parts.append(f"## {group.removeprefix('tidelog-').replace('-', ' ').capitalize()}")
        for rule in rules:
            parts += _runbook(rule)
    return "\n\n".join(parts)


def _runbook(rule: dict[str, Any]) -> list[str]:
    texts = {
        name: prose(_PLACEHOLDER.sub(r"*\1*", text)) for name, text in rule["annotations"].items()
    }
    texts = {name: text.replace("\\*", "*") for name, text in texts.items()}
    waits = f"after {rule['for']}" if "for" in rule else "at once"
    return [
        f"### {rule['alert']}",
        f"**{rule['labels']['severity'].capitalize()}**, {waits}: {texts['summary']}",
        texts.get("description", ""),
        f"**What to do.** {texts['runbook']}",
        block("promql", rule["expr"]),
    ]
