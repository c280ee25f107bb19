"""Output of `make up` is readable and shell-safe whatever the directory is called."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from tidelog_runtime.local import ClusterError
from tidelog_runtime.local import __main__ as make_up
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import BrokerPart, ClusterFile, ControllerPart, GatewayPart
from tidelog_runtime.local.commands import PROGRAM, ClusterOptions
from tidelog_runtime.local.start_requests import request_start

# A shell splits the first and expands the second; the third would close a tag of rich.
NAMES = ["my data", "$HOME;x", "[/x]"]


def dead_broker(directory: Path) -> tuple[Any, Any]:
    process = SimpleNamespace(
        name="broker-2", log_path=directory / "broker-2.log", exit_status=1, ending=None
    )
    return process, SimpleNamespace(directory=directory, etcd=None)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_that_restarts_a_part_is_shell_quoted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_up, "how_it_ended", lambda _: "exit status 1")
    directory = tmp_path / name
    _, _, command = make_up._death(*dead_broker(directory)).partition("start it again: ")
    arguments = shlex.split(command)
    assert arguments[arguments.index("--directory") + 1] == str(directory)
    assert arguments[-2:] == ["--start", "broker-2"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], (2, 1)), (["--brokers", "5"], (5, 1)), (["--controllers", "3"], (2, 3))],
)
def test_a_later_start_has_as_many_parts_as_the_last_one(
    options: list[str], expected: tuple[int, int], tmp_path: Path
) -> None:
    cluster_file(tmp_path, gateway=True, embedded_etcd=True).write(tmp_path)
    cluster = make_up._cluster(make_up._parse(["--directory", str(tmp_path), *options]))
    assert (cluster.options.brokers, cluster.options.controllers) == expected


def test_the_first_start_has_three_brokers_and_two_controllers(tmp_path: Path) -> None:
    cluster = make_up._cluster(make_up._parse(["--directory", str(tmp_path)]))
    assert (cluster.options.brokers, cluster.options.controllers) == (3, 2)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_that_starts_a_cluster_is_shell_quoted(name: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as raised:
        request_start(tmp_path / name, "broker-2")
    _, _, command = str(raised.value).partition("start it: ")
    assert shlex.split(command)[-2:] == ["--directory", str(tmp_path / name)]


def cluster_file(directory: Path, *, gateway: bool, embedded_etcd: bool) -> ClusterFile:
    return ClusterFile(
        "default",
        "127.0.0.1:2379",
        [ControllerPart(1, "127.0.0.1:7401", None)],
        [BrokerPart(i, f"127.0.0.1:750{i}", None, str(directory)) for i in (1, 2)],
        GatewayPart("127.0.0.1:7600", None) if gateway else None,
        embedded_etcd,
    )


@pytest.mark.parametrize("gateway", [True, False])
@pytest.mark.parametrize("embedded", [True, False])
def test_the_command_that_starts_a_cluster_has_the_options_of_the_last_start(
    gateway: bool, embedded: bool, tmp_path: Path
) -> None:
    cluster_file(tmp_path, gateway=gateway, embedded_etcd=embedded).write(tmp_path)
    with pytest.raises(ClusterError) as raised:
        request_start(tmp_path, "broker-2")
    words = shlex.split(str(raised.value).partition("start it: ")[2])
    assert ("TIDELOG_ETCD=127.0.0.1:2379" in words) is not embedded
    again = make_up._parse(words[words.index(PROGRAM) + 1 :])
    assert (again.directory, again.brokers, again.controllers) == (tmp_path, 2, 1)
    assert again.gateway is gateway
    cluster = LocalCluster(tmp_path, brokers=2, controllers=1, gateway=gateway, etcd="h:1")
    assert cluster.options == ClusterOptions(2, 1, gateway, "h:1")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", [(), ("--start", "broker-2")])
def test_an_error_has_the_unescaped_directory(
    name: str, part: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / name
    if not part:
        directory.parent.mkdir(exist_ok=True)
        directory.write_text("a file")
    assert make_up.main(["--directory", str(directory), *part]) == 1
    assert str(directory) in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize("width", [20, 40, 80])
def test_part_addresses_are_not_truncated_on_a_narrow_terminal(width: int, tmp_path: Path) -> None:
    parts = cluster_file(tmp_path, gateway=True, embedded_etcd=True)
    shown = SimpleNamespace(
        describe=lambda: parts, directory=tmp_path, replaced_ports={}, etcd=object()
    )
    console = Console(file=io.StringIO(), force_terminal=False, width=width)
    make_up._show(cast(LocalCluster, shown), console)
    text = cast(io.StringIO, console.file).getvalue()
    assert parts.gateway is not None
    addresses = [c.address for c in parts.controllers] + [b.address for b in parts.brokers]
    for address in (*addresses, f"{parts.gateway.address}/metrics", parts.bootstrap):
        assert address in text


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_an_invalid_directory_is_wrong_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        make_up.main(["--directory", name])
    assert cast(int, raised.value.code) == 2
    assert "is no directory" in capsys.readouterr().err
