"""`tidelog backup`: what its commands print, and their exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidelog.backup.segments import PARTIAL_SUFFIX
from tidelog.cli.exit_status import ExitStatus
from tidelog.model import NO_LEADER
from tidelog.v1 import admin_pb2 as pb
from unit.backup.written import batch, fence
from unit.cli.conftest import Commands


@pytest.fixture
def backup(commands: Commands, tmp_path: Path) -> str:
    """A backup of "sea", with four records in partition 0."""
    commands.cluster.partition("sea", 0).batches = [batch(0), batch(2)]
    directory = str(tmp_path / "backup")
    result = commands.run("backup", "create", directory)
    assert result.exit_code == ExitStatus.DONE, result.output
    assert "1 topic, 2 partitions, 4 records" in result.stdout
    return directory


def segment(directory: str) -> Path:
    (found,) = Path(directory).glob("topics/sea/0/*.log")
    return found


def test_create_reports_damage_and_fails(commands: Commands, tmp_path: Path) -> None:
    partition = commands.cluster.partition("sea", 0)
    partition.batches, partition.damaged = [batch(0), batch(2)], [(0, 2)]
    directory = str(tmp_path / "backup")
    result = commands.run("backup", "create", directory)
    assert result.exit_code == ExitStatus.FAILED
    assert "sea/0 lacks offsets 0 to 1: no replica could read them" in result.stderr
    # The gap is known from then on.
    again = commands.run("backup", "create", directory, "--incremental", "--json")
    assert again.exit_code == ExitStatus.DONE
    document = json.loads(again.stdout)
    assert (document["records"], document["copied_bytes"]) == (2, 0)
    assert document["gaps"] == [
        {"topic": "sea", "partition": 0, "first_offset": 0, "next_offset": 2, "reason": "damaged"}
    ]


def test_create_names_partitions_without_a_leader(commands: Commands, tmp_path: Path) -> None:
    commands.cluster.partition("sea", 0).batches = [batch(0)]
    commands.cluster.partition("sea", 1).leader = NO_LEADER
    create = ("backup", "create", str(tmp_path / "backup"), "--leader-timeout", "0.2")
    result = commands.run(*create)
    assert result.exit_code == ExitStatus.FAILED
    assert "1 partition had no leader that answered within 0.2 s: sea/1" in result.stderr
    incomplete = commands.run(*create, "--allow-incomplete", "--json")
    assert incomplete.exit_code == ExitStatus.FAILED
    document = json.loads(incomplete.stdout)
    assert (document["complete"], document["records"]) == (False, 2)
    assert [(f["topic"], f["partition"]) for f in document["failures"]] == [("sea", 1)]
    shown = commands.run("backup", "show", create[2])
    assert "sea/1 is not complete: no leader answered" in shown.stderr


def test_show_and_restore_state_that_offsets_change(commands: Commands, tmp_path: Path) -> None:
    commands.controller.answer("AlterTopicConfig", pb.AlterTopicConfigResponse())
    commands.cluster.partition("sea", 0).batches = [batch(0), fence(2), batch(3)]
    directory = str(tmp_path / "backup")
    assert commands.run("backup", "create", directory).exit_code == ExitStatus.DONE
    assert "new (offsets.json)" in commands.run("backup", "show", directory).stdout
    restored = commands.run("backup", "restore", directory, "--rename", "sea=bay")
    assert restored.exit_code == ExitStatus.DONE, restored.output
    assert f"{directory}/offsets.json maps stored positions" in restored.stderr


def test_a_backup_in_the_way_is_a_usage_error(commands: Commands, backup: str) -> None:
    result = commands.run("backup", "create", backup)
    assert result.exit_code == ExitStatus.USAGE
    assert "--incremental" in result.stderr


def test_verify_finds_a_sound_backup(commands: Commands, backup: str) -> None:
    result = commands.run("backup", "verify", backup)
    assert result.exit_code == ExitStatus.DONE
    assert result.stdout.rstrip().endswith(": sound")


def test_verify_names_damage_and_fails(commands: Commands, backup: str) -> None:
    path = segment(backup)
    path.write_bytes(path.read_bytes()[:-1])
    result = commands.run("backup", "verify", backup)
    assert result.exit_code == ExitStatus.FAILED
    assert "DAMAGED" in result.stdout
    assert path.name in result.stderr


@pytest.mark.parametrize("command", ["verify", "show", "restore"])
def test_a_directory_without_a_backup_is_a_usage_error(
    commands: Commands, tmp_path: Path, command: str
) -> None:
    result = commands.run("backup", command, str(tmp_path / "nothing"))
    assert result.exit_code == ExitStatus.USAGE
    assert "holds no backup" in result.stderr


def test_show_lists_topics_and_partitions(commands: Commands, backup: str) -> None:
    topics = commands.run("backup", "show", backup).stdout
    assert topics.splitlines()[2].split()[:4] == ["sea", "2", "1", "4"]
    partitions = commands.run("backup", "show", backup, "--partitions").stdout
    assert partitions.splitlines()[2].split()[:4] == ["sea/0", "0", "4", "4"]
    document = json.loads(commands.run("backup", "show", backup, "--json").stdout)
    assert document["topics"][0]["partitions"][0]["next_offset"] == 4


def test_show_prints_settings_and_counts_as_other_tables(
    commands: Commands, tmp_path: Path
) -> None:
    commands.cluster.create("bay", [0], retention_ms="1000").partitions[0].batches = [
        batch(first, count=500) for first in range(0, 1_500, 500)
    ]
    directory = str(tmp_path / "bay")
    commands.run("backup", "create", directory, "--topics", "bay")
    shown = commands.run("backup", "show", directory).stdout
    assert "1,500" in shown
    assert "retention_ms=1s" in shown


def test_offsets_are_mapped_in_a_file_of_their_own(backup: str) -> None:
    document = json.loads((Path(backup) / "offsets.json").read_text())
    assert document == {"sea": {"0": [[0, 4, 0]], "1": []}}


def test_restore_and_compare_under_another_name(commands: Commands, backup: str) -> None:
    commands.controller.answer("AlterTopicConfig", pb.AlterTopicConfigResponse())
    restored = commands.run("backup", "restore", backup, "--rename", "sea=bay", "--json")
    assert restored.exit_code == ExitStatus.DONE, restored.output
    (topic,) = json.loads(restored.stdout)["topics"]
    assert (topic["topic"], topic["source"], topic["written"]) == ("bay", "sea", 4)
    compare = ("backup", "verify", backup, "--against", "--rename", "sea=bay")
    equal = commands.run(*compare)
    assert (equal.exit_code, ": 0 differences in 2 partitions" in equal.stdout) == (0, True)
    commands.cluster.partition("bay", 0).batches.pop()
    different = commands.run(*compare)
    assert different.exit_code == ExitStatus.FAILED
    assert "bay/0 lacks offset 2, which is sea/0 offset 2" in different.stderr


def test_restore_of_a_damaged_backup_fails_and_creates_nothing(
    commands: Commands, backup: str
) -> None:
    path = segment(backup)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    result = commands.run("backup", "restore", backup, "--rename", "sea=bay")
    assert result.exit_code == ExitStatus.FAILED
    assert path.name in result.stderr
    assert "nothing was restored" in result.stderr
    assert list(commands.cluster.topics) == ["sea"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("restore", "--rename", "sea"), "OLD=NEW"),
        (("restore", "--rename", "bay=sea"), "no topic 'bay'"),
        (("restore", "--topics", "bay"), "matches 'bay'"),
        (("restore", "--max-rate", "0"), "--max-rate is 0"),
        (("create", "--max-rate", "fast"), "'fast' is not a size; give one as 512B"),
        (("verify", "--topics", "sea"), "add --against"),
    ],
)
def test_wrong_options_are_usage_errors(
    commands: Commands, backup: str, arguments: tuple[str, ...], message: str
) -> None:
    command, *options = arguments
    result = commands.run("backup", command, backup, *options)
    assert result.exit_code == ExitStatus.USAGE
    assert message in result.stderr


def test_nothing_is_left_behind(backup: str) -> None:
    left = {path.name for path in Path(backup).iterdir()}
    assert left == {"manifest.json", "offsets.json", "topics", ".lock"}
    assert not list(Path(backup).rglob(f"*{PARTIAL_SUFFIX}"))
