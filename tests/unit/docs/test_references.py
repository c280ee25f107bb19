"""Generated references cover every setting, command, RPC, operation, metric, event, error and
alert."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import yaml

import tidelog.client
from documented import ROOT
from tidelog import record_limits, request_bounds
from tidelog.errors import ErrorCode, TidelogError
from tidelog.record_limits import RecordLimits
from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog.v1 import (
    admin_pb2,
    broker_pb2,
    controller_pb2,
    inspect_pb2,
    replica_control_pb2,
    replica_pb2,
    scrub_pb2,
)
from tidelog_admin_api.config import AdminApiConfig
from tidelog_broker.broker_config import BrokerConfig
from tidelog_broker.core.partition.producer_state import (
    MAX_RECENT_UNNAMED_PRODUCERS,
    MAX_UNNAMED_PRODUCERS,
)
from tidelog_controller.controller_config import ControllerConfig
from tidelog_docs import limits, result_files
from tidelog_docs.commands import commands
from tidelog_docs.markdown import cell, table
from tidelog_docs.references import GENERATORS
from tidelog_docs.rest import operations
from tidelog_docs.settings import default, values
from tidelog_pipeline.archive import archive_config as archive
from tidelog_pipeline.lag import lag_config as lag
from tidelog_pipeline.pipeline_config import BrokersConfig
from tidelog_runtime.config import ServiceConfig
from tidelog_runtime.telemetry.metrics.catalogue import CATALOGUE
from tidelog_runtime.topic_config import TopicConfig

FIRST_CELL = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def firsts(*names: str) -> list[str]:
    return [name for reference in names for name in FIRST_CELL.findall(GENERATORS[reference]())]


@pytest.mark.parametrize(
    ("tables", "models"),
    [
        (("topics",), (TopicConfig,)),
        (("services", "registered", "broker"), (BrokerConfig,)),
        (("services", "registered", "controller"), (ControllerConfig,)),
        (("services", "gateway"), (AdminApiConfig,)),
        (("jobs", "archive"), tuple(archive.ACTIONS.values())),
        (("jobs", "lag"), tuple(lag.ACTIONS.values())),
    ],
)
def test_every_setting_is_listed(tables: tuple[str, ...], models: tuple[type, ...]) -> None:
    settings = {key for model in models for key in model.model_fields}  # type: ignore[attr-defined]
    assert set(firsts(*(f"settings {name}" for name in tables))) == settings


def test_a_setting_of_all_services_is_listed_again_only_with_another_default() -> None:
    repeated = set(firsts("settings gateway")) & set(ServiceConfig.model_fields)
    assert repeated == {"listen", "metrics_listen"}


def test_a_setting_has_its_default_and_its_bounds() -> None:
    field = BrokerConfig.model_fields["replica_fetch_max_bytes"]
    assert default("replica_fetch_max_bytes", field) == "`4194304` (4 MiB)"
    assert values(field) == "≥ 65,536, ≤ 16,777,216"
    assert values(TopicConfig.model_fields["retention_ms"]) == "≥ -1"
    assert values(TopicConfig.model_fields["recovery"]) == "`balanced`, `manual`"
    assert default("broker_id", BrokerConfig.model_fields["broker_id"]) == "required"
    assert default("bootstrap", BrokersConfig.model_fields["bootstrap"]).count("`") == 6


def test_the_bounds_on_producers_are_where_their_expiry_is_described() -> None:
    description = BrokerConfig.model_fields["producer_id_expiration_ms"].description or ""
    for bound in (MAX_UNNAMED_PRODUCERS, MAX_RECENT_UNNAMED_PRODUCERS):
        assert f"{bound:,}" in description


def test_every_fixed_limit_is_listed() -> None:
    """Each public bound on requests and on records is in a table of the page of limits."""
    source = inspect.getsource(limits)
    named = {name for module in (request_bounds, record_limits) for name in vars(module)}
    public = {name for name in named if re.match("(HIGHEST_)?MAX_", name)}
    assert {n for n in public | set(RecordLimits.__slots__) if n not in source} == set()
    page = "".join(GENERATORS[n]() for n in GENERATORS if n.startswith("limits "))
    assert "| name of a header | 1,024 bytes in UTF-8 |" in page
    assert "| bytes of a batch, decompressed | 67,108,864 |" in page
    assert "| text: a name, an id, a configuration value | 4,096 bytes |" in page
    assert "| among brokers and controllers | 32 MiB | 10,000; 60,000 replicas | 2,100,000 |" in (
        page
    )


def test_every_command_has_its_help() -> None:
    paths = [command.path for command in commands()]
    page = GENERATORS["commands"]()
    assert {"tidelog", "tidelog topics", "tidelog topics create", "tidelog trace"} < set(paths)
    assert len(paths) == len(set(paths))
    for command in commands():
        assert f"\n## {command.path}\n" in page
        assert command.summary
        assert f"Usage: {command.path}" in command.help


def test_every_rpc_and_message_is_listed() -> None:
    page = GENERATORS["grpc"]()
    modules = (
        *(admin_pb2, broker_pb2, controller_pb2, inspect_pb2),
        *(replica_control_pb2, replica_pb2, scrub_pb2),
    )
    for module in modules:
        for name, service in module.DESCRIPTOR.services_by_name.items():
            section = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
            assert FIRST_CELL.findall(section) == [rpc.name for rpc in service.methods]
        for name, message in module.DESCRIPTOR.message_types_by_name.items():
            section = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
            assert FIRST_CELL.findall(section) == [field.name for field in message.fields]


def test_every_link_within_a_reference_has_its_heading() -> None:
    for name in ("commands", "grpc", "rest"):
        page = GENERATORS[name]()
        headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
        anchors |= set(re.findall(r'id="([^"]+)"', page))
        assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors


def test_every_operation_of_the_gateway_is_listed_once() -> None:
    page = GENERATORS["rest"]()
    listed = re.findall(r"^### ((?:GET|PUT|POST|PATCH|DELETE) .+)$", page, re.MULTILINE)
    assert sorted(listed) == sorted(f"{method} {path}" for method, path, _ in operations())


@pytest.mark.parametrize("service", CATALOGUE)
def test_every_metric_is_listed(service: str) -> None:
    assert firsts(f"metrics {service}") == [metric.name for metric in CATALOGUE[service]]


@pytest.mark.parametrize(("name", "enumeration"), [("kinds", Kind), ("stages", Stage)])
def test_every_value_of_an_event_is_listed(name: str, enumeration: type[Kind | Stage]) -> None:
    assert firsts(f"events {name}") == [member.value for member in enumeration]


def test_every_field_of_an_event_is_listed() -> None:
    assert firsts("events fields") == list(StateChange._fields)
    assert "| `broker` | int | the broker that the event is about, which" in (
        GENERATORS["events fields"]()
    )


def test_every_cause_is_listed_with_its_remark() -> None:
    assert firsts("events causes") == [cause.value for cause in Cause if cause.value]
    assert "| `caught_up` | caught up |" in GENERATORS["events causes"]()
    assert "| `stray` | no longer assigned here |" in GENERATORS["events causes"]()


def test_every_error_is_listed_with_its_class_and_meaning() -> None:
    assert set(firsts("error classes")) >= {type(TidelogError(c, "")).__name__ for c in ErrorCode}
    assert firsts("error codes") == [code.name for code in ErrorCode]
    assert not re.search(r"\| *\|$", GENERATORS["error codes"](), re.MULTILINE)


def test_every_alert_has_its_runbook() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    page = GENERATORS["runbooks"]()
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == alerts
    assert page.count("**What to do.** ") == len(alerts)
    assert "{{" not in page


def test_every_public_name_of_the_client_has_a_place() -> None:
    documented = re.findall(r"tidelog\.client\.(\w+)", GENERATORS["python clients"]())
    documented += re.findall(r"tidelog\.client\.(\w+)", GENERATORS["python values"]())
    documented += firsts("error classes")
    assert sorted([*documented, "ErrorCode"]) == sorted(tidelog.client.__all__)


def test_text_of_a_cell_ends_no_cell_and_begins_no_tag() -> None:
    assert cell("a|b\n <c> `<d>` *") == "a\\|b &lt;c> `<d>` \\*"
    assert table(("a",), [("b",)]) == "| a |\n| --- |\n| b |"


def test_undocumented_and_obsolete_keys_of_result_files_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "ROOT", tmp_path)
    docstring = '"""Keys.\n\n    - `a`, `b`: two.\n    """'
    source = f'def content():\n    {docstring}\n    return {{"a": {{"x": 1}}}}\n'
    (tmp_path / "one.py").write_text(source)
    with pytest.raises(ValueError, match=r"content does not have the keys \['b'\]"):
        result_files.keys("one.py", "content")
    (tmp_path / "one.py").write_text(source.replace("1}", "1}, 'b': 2"))
    assert "| `a`, `b` | two |" in result_files.keys("one.py", "content")
