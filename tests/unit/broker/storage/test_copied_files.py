"""A copied data directory is synced before anything relies on it."""

import errno
import os
import random
import shutil
from pathlib import Path, PurePath

import pytest
from structlog.testing import capture_logs

from tidelog_broker.log.checkpoint import RECOVERY_POINTS
from tidelog_broker.log.disk import OsDisk, OsFile
from tidelog_broker.storage.copied_files import sync_tree
from tidelog_broker.storage.data_directory import DataDirectory
from unit.broker.broker_parts import in_place
from unit.broker.log.memory_disk import MemoryDisk

PATH = PurePath("/data")
SEGMENT = PATH / "replicas" / "sea-0.id" / "00000000000000000000.log"


class Machine:
    """Its directory was registered in epoch 7, stopped cleanly, and copied."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.boots = 1
        original = self.start()
        original.registered(7)
        for path, data in ((SEGMENT, b"records"), (PATH / RECOVERY_POINTS, b"points")):
            self.disk.make_directory(path.parent)
            self.disk.write_atomically(path, data, sync=True)
        original.stopped_cleanly(9)
        self.disk.restore(self.disk.contents())

    def start(self) -> DataDirectory:
        boot_id = f"boot {self.boots}"
        return DataDirectory.open(
            self.disk, PATH, broker_id=1, boot_id=boot_id, rng=random.Random(1)
        )

    def power_failure(self) -> None:
        self.disk.power_failure()
        self.boots += 1

    @property
    def segment(self) -> bytes:
        return self.disk.read_file(SEGMENT)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """No process reads recovery points here."""
    monkeypatch.setattr(
        "tidelog_broker.storage.copied_files.OffsetCheckpoint.read",
        lambda _: type("Read", (), {"file": None}),
    )
    return Machine()


async def test_a_power_failure_loses_nothing_of_a_synced_copy(machine: Machine) -> None:
    directory = machine.start()
    with capture_logs() as logs:
        await directory.sync_copy(in_place)
    machine.power_failure()

    assert machine.segment == b"records"
    assert machine.start().identity.synced_whole_since == 7
    [line] = logs
    assert line["event"] == "copied_directory_synced"
    assert (line["files"], line["directories"]) == (len(machine.disk.paths()), 3)


async def test_a_power_failure_before_the_sync_undoes_the_copys_claims(
    machine: Machine,
) -> None:
    machine.start()
    machine.power_failure()

    assert machine.start().identity.synced_whole_since == 0
    assert RECOVERY_POINTS not in machine.disk.list_names(PATH)


async def test_a_crash_before_the_sync_undoes_nothing(machine: Machine) -> None:
    machine.start()
    assert machine.start().identity.synced_whole_since == 7
    assert RECOVERY_POINTS in machine.disk.list_names(PATH)


async def test_a_failed_sync_fails_the_start_and_the_next_one_writes_the_files_again(
    machine: Machine,
) -> None:
    """The kernel treats data of a failed sync as written."""
    directory = machine.start()
    machine.disk.fail_sync = True
    with pytest.raises(OSError, match=str(PATH)) as failed:
        await directory.sync_copy(in_place)
    assert failed.value.errno == errno.EIO

    machine.disk.fail_sync = False
    await machine.start().sync_copy(in_place)
    machine.power_failure()
    assert machine.segment == b"records"


async def test_a_copy_is_synced_once(machine: Machine) -> None:
    await machine.start().sync_copy(in_place)
    directory = machine.start()
    with capture_logs() as logs:
        await directory.sync_copy(in_place)
        directory.registered(9)
        await machine.start().sync_copy(in_place)
    assert logs == []


async def test_replicas_without_an_identity_were_copied(machine: Machine) -> None:
    machine.disk.remove(PATH / "broker.json")
    await machine.start().sync_copy(in_place)
    machine.power_failure()
    assert machine.segment == b"records"


@pytest.mark.parametrize("rewrite", [False, True])
async def test_every_file_and_directory_of_a_real_disk_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, rewrite: bool
) -> None:
    below = tmp_path / "data" / "replicas" / "sea-0.id"
    below.mkdir(parents=True)
    files = [below / "0.log", below / "0.index", tmp_path / "data" / "broker.json"]
    for file in files:
        file.write_text(file.name)
    (below / "link").symlink_to("/dev/null")
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(
            os, name, lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        )

    await sync_tree(OsDisk(), tmp_path / "data", in_place, rewrite=rewrite)

    directories = [tmp_path, tmp_path / "data", below.parent, below]
    assert sorted(synced) == sorted(map(str, [*files, *directories]))
    assert [file.read_text() for file in files] == [file.name for file in files]


async def test_a_copy_by_hard_links_gets_files_of_its_own(tmp_path: Path) -> None:
    """Otherwise what it appends and cuts would change the original, which may be used again."""
    original, copy = tmp_path / "original", tmp_path / "data"
    replica = original / "replicas" / "sea-0.id"
    replica.mkdir(parents=True)
    segment = "00000000000000000000.log"
    for name in (segment, "leader-epochs", f"{segment}.0.aside", f"{segment}.tmp", "0.index"):
        (replica / name).write_text("records")
    (original / "broker.json").write_text("{}")
    shutil.copytree(original, copy, copy_function=os.link)

    with capture_logs() as logs:
        await sync_tree(OsDisk(), copy, in_place, rewrite=True)
    assert [(line["event"], line["files"]) for line in logs] == [("shared_files_copied", 3)]
    shared = {
        path.name
        for path in copy.rglob("*")
        if path.is_file() and path.samefile(original / path.relative_to(copy))
    }
    # These are replaced when they change.
    assert shared == {"broker.json", "0.index"}
    with (copy / "replicas" / "sea-0.id" / segment).open("r+") as file:
        file.write("others")
    assert (replica / segment).read_text() == "records"


async def test_a_full_disk_leaves_no_part_of_a_file_that_a_copy_by_hard_links_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, copy = tmp_path / "00000000000000000000.log", tmp_path / "data"
    original.write_text("records")
    copy.mkdir()
    os.link(original, copy / original.name)

    def write_at(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(OsFile, "write_at", write_at)
    with pytest.raises(OSError, match="No space left"):
        await sync_tree(OsDisk(), copy, in_place, rewrite=False)
    assert [path.name for path in copy.iterdir()] == [original.name]
