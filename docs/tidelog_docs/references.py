"""Which generated text takes the place of which marker in a page.

A page of the repository has a line `<!-- generated: settings broker -->` where the site has the
table of the broker's settings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial

import tidelog.client
from tidelog_docs import errors, limits, result_files, telemetry
from tidelog_docs.chart_values import chart_values
from tidelog_docs.commands import cli
from tidelog_docs.markdown import cell, code, table
from tidelog_docs.rest import rest
from tidelog_docs.rpcs import grpc
from tidelog_docs.settings import TABLES, settings
from tidelog_runtime.telemetry.metrics.catalogue import CATALOGUE

MARKER = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)

_CLIENTS = ("Producer", "Consumer", "Admin", "SyncProducer", "SyncConsumer", "SyncAdmin")

# Methods of the async clients are in several base classes.
_INHERITED = "\n    options:\n      inherited_members: true"
_WITHOUT_SETTINGS = "\n      merge_init_into_class: false"


def python_api(kind: str) -> str:
    """Returns directives for mkdocstrings; errors have a page of their own."""
    others = [
        name
        for name in tidelog.client.__all__
        if name not in _CLIENTS and not name.endswith("Error")
    ]
    if kind == "clients":
        return "\n\n".join(_client(name) for name in _CLIENTS)
    return "\n\n".join(f"::: tidelog.client.{name}" for name in others if name != "ErrorCode")


def _client(name: str) -> str:
    directive = f"::: tidelog.client.{name}{_INHERITED}"
    client = getattr(tidelog.client, name)
    made = [
        (method_name, method)
        for method_name, method in vars(client).items()
        if hasattr(method, "__is_blocking__")
    ]
    if not made:
        return directive
    # mkdocstrings reads the source, which has neither their parameters nor the settings.
    directive += f"{_WITHOUT_SETTINGS}\n\n{code(f'{name}{_parameters(client.__init__)}')}"
    rows = (
        (cell(code(f"{made_name}{_parameters(method)}")), cell(_summary(method)))
        for made_name, method in made
    )
    return f"{directive}\n\n{table(('further methods', 'meaning'), rows)}"


def _parameters(method: Callable[..., object]) -> str:
    signature = inspect.signature(method)
    parameters = [*signature.parameters.values()][1:]
    # Annotations are strings, which `str` quotes.
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature.replace(parameters=parameters)))


def _summary(method: Callable[..., object]) -> str:
    return (inspect.getdoc(method) or "").partition("\n\n")[0]


GENERATORS: Mapping[str, Callable[[], str]] = {
    **{f"settings {name}": partial(settings, name) for name in TABLES},
    **{f"metrics {service}": partial(telemetry.metrics, service) for service in CATALOGUE},
    **{f"events {name}": partial(telemetry.events, name) for name in ("kinds", "stages", "causes")},
    "events fields": telemetry.event_fields,
    **{f"python {kind}": partial(python_api, kind) for kind in ("clients", "values")},
    "limits requests": limits.requests,
    "limits entries": limits.entry_sizes,
    "limits fields": partial(limits.listed, limits.FIELDS),
    "limits records": partial(limits.listed, limits.RECORDS),
    "chart values": chart_values,
    "commands": cli,
    "error codes": errors.codes,
    "error classes": errors.classes,
    "grpc": grpc,
    "rest": rest,
    "runbooks": telemetry.runbooks,
    **{
        f"keys {path} {name}": partial(result_files.keys, path, name)
        for path, name in result_files.names()
    },
}


def fill(text: str) -> str:
    """Returns the page with generated text in the place of its markers."""
    return MARKER.sub(lambda marker: GENERATORS[marker[1]](), text)
