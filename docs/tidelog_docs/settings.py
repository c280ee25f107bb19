"""Settings of services, jobs and topics, from the pydantic models that validate them."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tidelog_admin_api.config import AdminApiConfig
from tidelog_broker.broker_config import BrokerConfig
from tidelog_controller.config import ControllerConfig
from tidelog_docs.markdown import cell, code, table
from tidelog_pipeline.archive import archive_config as archive
from tidelog_pipeline.check.check_config import CheckConfig
from tidelog_pipeline.lag import lag_config as lag
from tidelog_pipeline.pipeline_config import BrokersConfig
from tidelog_pipeline.state_changes.state_changes_config import StateChangesConfig
from tidelog_runtime.config import RegisteredConfig, ServiceConfig
from tidelog_runtime.topic_config import TopicConfig

Model = type[BaseModel]

# Name of the generated table, with its models; inherited settings are in another table.
TABLES: Mapping[str, tuple[Sequence[Model], Model | None]] = {
    "topics": ([TopicConfig], None),
    "services": ([ServiceConfig], None),
    "registered": ([RegisteredConfig], ServiceConfig),
    "broker": ([BrokerConfig], RegisteredConfig),
    "controller": ([ControllerConfig], RegisteredConfig),
    "gateway": ([AdminApiConfig], ServiceConfig),
    "jobs": ([BrokersConfig], None),
    "archive": (list(archive.ACTIONS.values()), BrokersConfig),
    "lag": (list(lag.ACTIONS.values()), BrokersConfig),
    "check": ([CheckConfig], BrokersConfig),
    "state-changes": ([StateChangesConfig], BrokersConfig),
}

_UNITS = (("_ms", ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "min"), (1_000, "s"))),)
_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def settings(name: str) -> str:
    """Returns the table of that name."""
    models, base = TABLES[name]
    return table(
        ("key", "default", "values", "meaning"),
        (
            (code(key), default(key, field), values(field), cell(field.description or ""))
            for key, field in fields(models, base).items()
        ),
    )


def fields(models: Sequence[Model], base: Model | None) -> dict[str, FieldInfo]:
    """Returns the settings of the models that the base lacks, or that have another default."""
    inherited = base.model_fields if base else {}
    return {
        key: field
        for model in models
        for key, field in model.model_fields.items()
        if key not in inherited or field.default != inherited[key].default
    }


def default(key: str, field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    match value:
        case None | "" | [] | {}:
            return "none"
        case bool():
            return code(str(value).lower())
        case int():
            return code(str(value)) + (f" ({size})" if (size := _readable(key, value)) else "")
        case list() | tuple():
            return ", ".join(code(str(item)) for item in value)
        case Path():
            return code(value.as_posix())
        case _:
            return code(str(getattr(value, "value", value)))


def values(field: FieldInfo) -> str:
    """Returns what the field accepts: its choices, or its bounds."""
    choices = _choices(field.annotation)
    if choices:
        return ", ".join(code(str(choice)) for choice in choices)
    lower, upper = "", ""
    for bound in (*field.metadata, *_nested_metadata(field.annotation)):
        match bound:
            case Ge(ge=edge):
                lower = f"≥ {edge:,}"
            case Gt(gt=edge):
                lower = f"> {edge:,}"
            case Le(le=int(edge)) if edge < 2**63 - 1:
                upper = f"≤ {edge:,}"
            case Lt(lt=edge):
                upper = f"< {edge:,}"
    return ", ".join(filter(None, (lower, upper)))


def _readable(key: str, value: int) -> str:
    """Returns a time or a size with the largest unit that divides it."""
    if value <= 0:
        return ""
    units = _UNITS[0][1] if key.endswith("_ms") else _BYTES if "bytes" in key else ()
    for unit, name in units:
        if value % unit == 0:
            return f"{value // unit:,} {name}"
    return ""


def _choices(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return tuple(c for part in typing.get_args(annotation) for c in _choices(part))
    if isinstance(annotation, type) and hasattr(annotation, "__members__"):
        return tuple(member.value for member in annotation.__members__.values())
    return ()


def _nested_metadata(annotation: Any) -> tuple[Any, ...]:
    return tuple(
        bound for part in typing.get_args(annotation) for bound in getattr(part, "__metadata__", ())
    )
