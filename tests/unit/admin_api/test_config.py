"""Configuration of the gateway, and settings that it does not use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog_admin_api.config import MAX_CONNECTIONS, AdminApiConfig
from tidelog_runtime.config import flag, load
from tidelog_runtime.local import cluster_file
from tidelog_runtime.local.cluster_file import Setting

UNUSED: dict[str, Setting] = {
    "etcd_endpoints": ["127.0.0.1:2379"],
    "lease_ttl_seconds": 5,
    "state_changes_topic": False,
    "state_changes_queue_events": 7,
}


def error_text(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        load(AdminApiConfig, argv)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("name", UNUSED)
def test_a_setting_without_an_effect_is_rejected_as_unknown(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gateway.toml"
    cluster_file.write(path, {name: UNUSED[name]})
    assert f"sets {name}, which does not exist" in error_text(capsys, "--config", str(path))
    assert f"unrecognized arguments: {flag(name)}" in error_text(capsys, flag(name), "1")


def test_variables_of_other_services_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDELOG_LEASE_TTL_SECONDS", "no number")
    assert not hasattr(load(AdminApiConfig, []), "lease_ttl_seconds")


def test_more_requests_than_connections_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    message = error_text(capsys, "--max-concurrent-requests", str(MAX_CONNECTIONS + 1))
    assert "max_concurrent_requests" in message
    assert f"less than or equal to {MAX_CONNECTIONS}" in message


def test_more_streams_than_requests_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    message = error_text(capsys, "--max-concurrent-requests", "10")
    assert "max_concurrent_streams is 64 and max_concurrent_requests is 10" in message
    assert "raise max_concurrent_requests or lower max_concurrent_streams" in message
    assert load(AdminApiConfig, ["--max-concurrent-streams", "256"]).max_concurrent_streams == 256


def test_more_requests_than_connections_of_a_client_are_rejected(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = error_text(capsys, "--max-requests-per-client", "300")
    assert "max_requests_per_client is 300 and max_connections_per_client is 256" in message
    both = ["--max-requests-per-client", "300", "--max-connections-per-client", "300"]
    assert load(AdminApiConfig, both).max_requests_per_client == 300
