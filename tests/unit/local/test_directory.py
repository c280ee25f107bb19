"""Files in the directory of a local cluster: the lock, the addresses, configuration."""

import json
import os
import random
import socket
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog_runtime.local import cluster_file
from tidelog_runtime.local.addresses import Addresses, choose_port
from tidelog_runtime.local.cluster_file import (
    BrokerPart,
    ClusterFile,
    ClusterFileError,
    ControllerPart,
    GatewayPart,
    read_cluster_file,
)
from tidelog_runtime.local.data_directory import (
    DirectoryInUseError,
    DirectoryLock,
    DirectoryNotWritableError,
)

FILE = ClusterFile(
    cluster="default",
    etcd="127.0.0.1:2379",
    controllers=[ControllerPart(1, "127.0.0.1:7401", 10, "127.0.0.1:8401")],
    brokers=[
        BrokerPart(1, "127.0.0.1:7501", 11, "/data/1", "127.0.0.1:8501"),
        BrokerPart(2, "127.0.0.1:7502", None, "/data/2"),
    ],
    gateway=GatewayPart("127.0.0.1:7600", 13),
)


def test_a_directory_is_locked_by_one_cluster(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)

    with pytest.raises(
        DirectoryInUseError, match=r"already running in .*, as process \d+; stop it"
    ):
        DirectoryLock(tmp_path)

    lock.release()
    DirectoryLock(tmp_path).release()


def test_an_unwritable_directory_is_named(tmp_path: Path) -> None:
    # Neither permissions nor a missing parent stop root; a file in the way does.
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryNotWritableError, match=r"cannot be written to .*; choose"):
        DirectoryLock(tmp_path / "file" / "cluster")


def test_the_lock_holder_is_known_while_it_holds_the_lock(tmp_path: Path) -> None:
    assert DirectoryLock.holder(tmp_path / "none") is None
    lock = DirectoryLock(tmp_path)
    assert DirectoryLock.holder(tmp_path) == os.getpid()
    lock.release()
    assert DirectoryLock.holder(tmp_path) is None


def test_the_cluster_file_round_trips(tmp_path: Path) -> None:
    FILE.write(tmp_path)

    assert read_cluster_file(tmp_path) == FILE


def test_a_cluster_file_without_a_gateway_is_read(tmp_path: Path) -> None:
    replace(FILE, gateway=None).write(tmp_path)
    path = tmp_path / "cluster.json"
    content = json.loads(path.read_text())
    del content["gateway"]
    path.write_text(json.dumps(content))

    assert read_cluster_file(tmp_path) == replace(FILE, gateway=None)


def test_the_cluster_file_has_the_keys_that_its_readers_take(tmp_path: Path) -> None:
    FILE.write(tmp_path)

    assert json.loads((tmp_path / "cluster.json").read_text()) == {
        "cluster": "default",
        "etcd": "127.0.0.1:2379",
        "controllers": [
            {"id": 1, "address": "127.0.0.1:7401", "pid": 10, "metrics": "127.0.0.1:8401"}
        ],
        "brokers": [
            {
                "id": 1,
                "address": "127.0.0.1:7501",
                "pid": 11,
                "data_dir": "/data/1",
                "metrics": "127.0.0.1:8501",
            },
            {
                "id": 2,
                "address": "127.0.0.1:7502",
                "pid": None,
                "data_dir": "/data/2",
                "metrics": "",
            },
        ],
        "gateway": {"address": "127.0.0.1:7600", "pid": 13},
        "embedded_etcd": True,
        "bootstrap": "127.0.0.1:7501,127.0.0.1:7502",
    }


def test_a_new_directory_has_no_cluster_file(tmp_path: Path) -> None:
    assert read_cluster_file(tmp_path) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cluster": 1, "etcd": 1, "brokers": [1]}'])
def test_an_invalid_cluster_file_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)

    with pytest.raises(ClusterFileError, match=r"is not a cluster file .*; delete it"):
        read_cluster_file(tmp_path)


def test_a_port_in_use_is_skipped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        taken: set[int] = set()

        chosen = choose_port(port, taken=taken, rng=random.Random(1))

    assert chosen != port
    assert taken == {chosen}


def test_a_free_port_is_allocated_once() -> None:
    taken: set[int] = set()
    first = choose_port(None, taken=taken, rng=random.Random(2))

    assert choose_port(first, taken=taken, rng=random.Random(3)) != first


def test_a_configuration_file_has_the_given_settings(tmp_path: Path) -> None:
    settings: dict[str, cluster_file.Setting] = {
        "text": 'a "quoted" \\ path\nof ünïcode 🌊',
        "number": 3,
        "share": 0.5,
        "on": True,
        "addresses": ["a:1", "b:2"],
    }
    path = tmp_path / "config" / "broker-1.toml"

    cluster_file.write(path, settings)

    assert tomllib.loads(path.read_text()) == settings


def test_an_occupied_port_is_reported_with_its_replacement() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        occupied = other.getsockname()[1]
        addresses = Addresses(None, usual_ports=True, rng=random.Random(1))
        chosen = int(addresses.choose("broker-1", occupied).rpartition(":")[2])
    assert chosen != occupied
    assert addresses.replaced == {"broker-1": (occupied, chosen)}
