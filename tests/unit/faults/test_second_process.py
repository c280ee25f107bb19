"""A second process with a broker's id: its log events are the effect, and it has its own address
and data."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from faults.catalogue import KINDS, Ability
from faults.compose_override import addresses, second_address
from faults.container_cluster import SECONDS, SERVICES
from faults.container_second import create_command
from faults.effects import lacking
from faults.kinds.second_process import seen_of_second
from faults.second_directory import copy_directory

KINDS_OF_SECOND = [name for name, kind in KINDS.items() if kind.needs is Ability.SECOND]
REJECTED = {"event": "cannot_start", "why": "broker id 1 belongs to data directory 7f"}
IN_USE = {"event": "cannot_start", "why": "/d is in use by another broker process"}
WAITS = {"event": "broker_id_taken", "by": "broker-1:7500"}
NOT_INTACT = {"event": "data_directory_not_intact"}
REGISTERED = {"event": "state_change", "kind": "registration", "stage": "completed"}
FAILED = {**REGISTERED, "stage": "failed"}


def lines(*logged: dict[str, Any]) -> list[bytes]:
    return [json.dumps(line).encode() + b"\n" for line in logged]


@pytest.mark.parametrize("kind", KINDS_OF_SECOND)
@pytest.mark.parametrize(
    ("logged", "exit_status", "shows"),
    [
        ((), None, set()),
        ((REJECTED,), 1, {"start_second_process", "start_second_while_paused"}),
        ((REJECTED,), None, set()),
        ((REJECTED,), -9, set()),
        ((IN_USE,), 1, set()),
        ((WAITS,), None, {"start_copied_process"}),
        ((REGISTERED, NOT_INTACT), None, {"take_over_by_copy"}),
        ((REGISTERED,), None, set()),
        ((FAILED, NOT_INTACT), None, set()),
    ],
)
def test_log_events_of_a_second_process_are_the_effect_of_its_kind(
    kind: str, logged: tuple[dict[str, Any], ...], exit_status: int | None, shows: set[str]
) -> None:
    measures = {**seen_of_second(lines(*logged), exit_status), "seen_stopped": 1}

    assert (lacking(kind, measures) == []) is (kind in shows)


def test_a_torn_line_is_no_effect() -> None:
    torn = lines(WAITS)[0][:-5]

    assert seen_of_second([torn], None)["waits_reported"] == 0


def test_a_second_container_differs_from_the_first_in_address_and_data() -> None:
    like = {
        "Config": {
            "Image": "tidelog-broker:faults",
            "Env": ["TIDELOG_BROKER_ID=1", "TIDELOG_ADVERTISED_ADDRESS=broker-1:7500"],
            "User": "",
            "Cmd": None,
        },
        "HostConfig": {
            "Binds": ["/disks/1:/var/lib/tidelog:rw", "/clocks/1:/faketime:ro"],
            "NanoCpus": 1_000_000_000,
        },
        "NetworkSettings": {"Networks": {"tidelog-faults_default": {}}},
    }

    command = create_command("second", like, Path("/seconds/1"), 0)

    assert command[-1] == "tidelog-broker:faults"
    assert [part for part in command if part.startswith("--volume")] == [
        "--volume=/clocks/1:/faketime:ro",
        "--volume=/seconds/1:/var/lib/tidelog",
    ]
    # The engine takes the last value of a variable.
    settings = [part for part in command if part.startswith("--env")]
    assert settings[0] == "--env=TIDELOG_BROKER_ID=1"
    assert settings[-1] == f"--env=TIDELOG_ADVERTISED_ADDRESS={second_address(0)}:7500"


def test_no_service_uses_the_address_of_a_second_process() -> None:
    taken = set(addresses(SERVICES).values())

    assert taken.isdisjoint(second_address(number) for number in range(len(SECONDS)))


def test_a_directory_is_copied_while_its_broker_removes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    (source / "replicas").mkdir(parents=True)
    for name in ("kept", "removed"):
        (source / "replicas" / name).write_text(name)
    copy = shutil.copy2

    def copy_after_removal(path: str, target: str) -> object:
        if path.endswith("removed"):
            Path(path).unlink()
        return copy(path, target)

    monkeypatch.setattr(shutil, "copy2", copy_after_removal)
    copy_directory(source, tmp_path / "target")

    assert [path.name for path in (tmp_path / "target" / "replicas").iterdir()] == ["kept"]
