"""The identity of a data directory, and since when it is intact."""

import os
import random
import shutil
from pathlib import Path, PurePath

import pytest

from tidelog_broker.log.checked_file import write_checked
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.storage.data_directory import (
    DataDirectory,
    DataDirectoryError,
    Identity,
    stored_identity,
)
from tidelog_broker.storage.directory_lock import hold_lock
from tidelog_runtime.metadata.broker_directories import RejectionCause
from unit.broker.log.memory_disk import MemoryDisk

PATH = PurePath("/data")
FILE = PATH / "broker.json"


class Machine:
    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.boot_id = "boot 1"

    def start(self, broker_id: int = 1) -> DataDirectory:
        return DataDirectory.open(
            self.disk, PATH, broker_id=broker_id, boot_id=self.boot_id, rng=random.Random(1)
        )

    def reboot(self) -> None:
        self.disk.power_failure()
        self.boot_id += "+1"


def intact(directory: DataDirectory) -> tuple[int, int]:
    return directory.identity.whole_since, directory.identity.synced_whole_since


def registered_at(machine: Machine, broker_epoch: int) -> DataDirectory:
    directory = machine.start()
    directory.registered(broker_epoch)
    return directory


# -- releases -----------------------------------------------------------------------------


def test_a_directory_of_a_later_level_is_rejected_and_stays_as_it_is() -> None:
    machine = Machine()
    registered_at(machine, 7).note_level(2)
    before = machine.disk.read_file(FILE)
    with pytest.raises(DataDirectoryError, match=r"at feature level 2.*too old") as raised:
        machine.start()
    assert raised.value.cause is RejectionCause.VERSION
    assert machine.disk.read_file(FILE) == before


def test_a_directory_keeps_the_highest_level_at_which_its_broker_ran() -> None:
    directory = registered_at(Machine(), 7)
    directory.note_level(2)
    directory.note_level(1)
    assert directory.identity.feature_level == 2


def test_a_file_of_a_later_form_is_not_reported_as_damaged() -> None:
    machine = Machine()
    machine.start()
    later = b"tidelog broker 2 00000000\n{}\n"
    machine.disk.write_atomically(FILE, later, sync=True)
    with pytest.raises(
        DataDirectoryError, match=r"has version 2 of its form.*later release"
    ) as raised:
        machine.start()
    assert raised.value.cause is RejectionCause.VERSION
    assert machine.disk.read_file(FILE) == later


def test_a_file_without_a_level_is_of_the_first_one() -> None:
    assert Identity.from_json({"broker_id": 1, "node_uuid": "u"}).feature_level == 1


# -- identity ----------------------------------------------------------------------------


def test_a_directory_keeps_its_uuid() -> None:
    machine = Machine()
    assert machine.start().identity.node_uuid == machine.start().identity.node_uuid


def test_directories_have_different_uuids() -> None:
    one, other = (
        DataDirectory.open(MemoryDisk(), PATH, broker_id=1, boot_id="", rng=random.Random(seed))
        for seed in (1, 2)
    )
    assert one.identity.node_uuid != other.identity.node_uuid


def test_the_directory_of_another_broker_is_rejected_with_both_remedies() -> None:
    machine = Machine()
    registered_at(machine, 7)
    with pytest.raises(DataDirectoryError, match="belongs to broker 1, this is broker 2") as raised:
        machine.start(broker_id=2)
    assert "data_dir" in str(raised.value)
    assert "broker_id" in str(raised.value)


def test_a_directory_that_never_registered_may_be_that_of_another_broker() -> None:
    """For example, after a start that was rejected because the broker id is in use."""
    machine = Machine()
    first = machine.start(broker_id=1)
    first.join_cluster("here")
    second = machine.start(broker_id=2)
    assert second.identity.broker_id == 2
    assert second.identity.directory_id == first.identity.directory_id
    machine.disk.make_directory(PATH / "replicas" / "sea-0.x")
    machine.disk.write_atomically(PATH / "replicas" / "sea-0.x" / "log", b"", sync=True)
    assert second.lacks_identity
    with pytest.raises(DataDirectoryError, match="belongs to broker 2, this is broker 1"):
        machine.start(broker_id=1)


def test_a_registration_that_may_have_been_made_binds_the_directory() -> None:
    machine = Machine()
    machine.start(broker_id=1).begin_registration(None)
    with pytest.raises(DataDirectoryError, match="belongs to broker 1, this is broker 2"):
        machine.start(broker_id=2)


def test_a_rejected_start_leaves_the_directory_as_it_was() -> None:
    machine = Machine()
    registered_at(machine, 7)
    before = machine.disk.read_file(FILE)
    machine.boot_id = "boot 2"
    with pytest.raises(DataDirectoryError):
        machine.start(broker_id=2)
    assert machine.disk.read_file(FILE) == before


def test_the_directory_of_another_cluster_is_rejected() -> None:
    machine = Machine()
    machine.start().join_cluster("here")
    with pytest.raises(DataDirectoryError, match=r"belongs to cluster here.*of cluster there"):
        machine.start().join_cluster("there")


def test_a_store_without_a_cluster_is_rejected_by_a_directory_that_was_in_one() -> None:
    machine = Machine()
    machine.start().join_cluster("here")
    with pytest.raises(DataDirectoryError, match=r"belongs to cluster here.*holds no cluster"):
        machine.start().join_cluster(None)
    assert machine.start().identity.cluster_id == "here"


@pytest.mark.parametrize("cluster_id", [None, "there"])
def test_a_wrong_cluster_name_is_reported_with_the_right_one(cluster_id: str | None) -> None:
    machine = Machine()
    machine.start().join_cluster("here", "north")
    with pytest.raises(DataDirectoryError) as raised:
        machine.start().join_cluster(cluster_id, "south")
    assert "/data belongs to cluster 'north' (here)" in str(raised.value)
    assert "'south'" in str(raised.value)
    assert "set cluster to north" in str(raised.value)
    assert raised.value.cause is RejectionCause.DATA_DIRECTORY


def test_a_store_that_lost_the_named_cluster_counts_as_wiped() -> None:
    machine = Machine()
    machine.start().join_cluster("here", "north")
    with pytest.raises(DataDirectoryError, match="it was wiped") as raised:
        machine.start().join_cluster(None, "north")
    assert raised.value.cause is RejectionCause.STORE


def test_a_directory_of_an_older_release_learns_the_name_of_its_cluster() -> None:
    machine = Machine()
    machine.start().join_cluster("here")
    machine.start().join_cluster("here", "north")
    found = stored_identity(machine.disk, PATH)
    assert found is not None
    assert (found.cluster_id, found.cluster_name) == ("here", "north")


def test_the_identity_of_a_directory_is_read_without_a_start() -> None:
    machine = Machine()
    assert stored_identity(machine.disk, PATH) is None
    registered_at(machine, 7).note_revision(12)
    found = stored_identity(machine.disk, PATH)
    assert found is not None
    assert (found.broker_id, found.store_revision) == (1, 12)
    machine.disk.write_atomically(FILE, b"{half", sync=True)
    assert stored_identity(machine.disk, PATH) is None


def test_a_cluster_is_joined_again() -> None:
    machine = Machine()
    machine.start().join_cluster("here")
    machine.start().join_cluster("here")


def test_a_damaged_file_is_rejected_and_not_replaced() -> None:
    machine = Machine()
    machine.start()
    machine.disk.names[FILE].data[-3] ^= 1
    with pytest.raises(DataDirectoryError, match=r"broker\.json.*restore the file"):
        machine.start()


def test_a_written_identity_survives_a_power_failure() -> None:
    machine = Machine()
    directory = registered_at(machine, 7)
    directory.join_cluster("here")
    machine.disk.power_failure()
    assert machine.start().identity.cluster_id == "here"


# -- since when it is intact -------------------------------------------------------------


def test_an_empty_directory_is_intact_since_its_first_registration() -> None:
    assert intact(Machine().start()) == (0, 0)
    assert intact(registered_at(Machine(), 7)) == (7, 7)


def test_registering_again_in_the_same_incarnation_changes_nothing() -> None:
    directory = registered_at(Machine(), 7)
    directory.registered(9)
    assert intact(directory) == (7, 7)


def test_after_a_clean_stop_it_is_intact_even_over_a_reboot() -> None:
    machine = Machine()
    registered_at(machine, 7).stopped_cleanly(20)
    machine.reboot()
    assert intact(machine.start()) == (7, 7)


def test_after_a_crash_of_only_the_process_it_is_intact() -> None:
    machine = Machine()
    registered_at(machine, 7)
    assert intact(machine.start()) == (7, 7)


def test_after_a_crash_of_the_machine_only_synced_data_is_intact() -> None:
    machine = Machine()
    registered_at(machine, 7)
    machine.reboot()
    assert intact(machine.start()) == (0, 7)


@pytest.mark.rule("losses-remembered-across-incarnations")
def test_another_restart_of_the_process_does_not_make_it_intact_again() -> None:
    """Rule `losses-remembered-across-incarnations`."""
    machine = Machine()
    registered_at(machine, 7)
    machine.reboot()
    machine.start()
    again = machine.start()
    assert intact(again) == (0, 7)
    again.registered(9)
    assert intact(again) == (9, 7)


def test_one_clean_stop_does_not_cover_the_crash_after_it() -> None:
    machine = Machine()
    registered_at(machine, 7).stopped_cleanly(20)
    machine.start()
    machine.reboot()
    assert intact(machine.start()) == (0, 7)


def test_without_a_boot_id_a_crash_counts_as_a_machine_crash() -> None:
    machine = Machine()
    machine.boot_id = ""
    registered_at(machine, 7)
    assert intact(machine.start()) == (0, 7)


# -- the revision of the store -----------------------------------------------------------


@pytest.mark.rule("other-or-older-store-rejected")
def test_a_store_older_than_the_last_seen_revision_is_rejected() -> None:
    """Rule `other-or-older-store-rejected`: restored from a backup, it takes sound replicas for
    strays."""
    machine = Machine()
    machine.start().stopped_cleanly(20)
    directory = machine.start()
    directory.require_revision(20)
    with pytest.raises(DataDirectoryError, match=r"at revision 19.*to 20 already"):
        directory.require_revision(19)


def test_a_rejected_store_is_rejected_again() -> None:
    machine = Machine()
    machine.start().stopped_cleanly(20)
    machine.start().stopped_cleanly(3)
    assert machine.start().identity.store_revision == 20


def test_revisions_noted_before_a_crash_count_too() -> None:
    machine = Machine()
    machine.start().note_revision(20)
    with pytest.raises(DataDirectoryError, match="restored from an old backup"):
        machine.start().require_revision(19)


def test_noting_revisions_syncs_nothing() -> None:
    machine = Machine()
    directory = machine.start()
    machine.disk.fail_sync = True
    directory.note_revision(20)
    directory.note_revision(21)
    assert directory.seen_revision == 21


def test_a_note_torn_by_a_power_failure_is_ignored() -> None:
    machine = Machine()
    machine.start().stopped_cleanly(20)
    machine.start().note_revision(30)
    machine.disk.names[PATH / "store-revision"].data[-3] ^= 1
    assert machine.start().seen_revision == 20


# -- the end of the previous process -----------------------------------------------------


def test_a_clean_stop_a_crash_and_a_reboot_are_distinguished() -> None:
    machine = Machine()
    ends = [machine.start().previous_end]
    machine.start().stopped_cleanly(5)
    ends.append(machine.start().previous_end)
    ends.append(machine.start().previous_end)
    machine.boot_id = "boot 2"
    ends.append(machine.start().previous_end)
    assert ends == ["", "stopped", "crashed", "rebooted"]


def test_without_boot_ids_a_crash_is_not_reported_as_a_reboot() -> None:
    machine = Machine()
    machine.boot_id = ""
    machine.start()
    machine.boot_id = "boot 2"
    assert machine.start().previous_end == "crashed"


# -- other releases ------------------------------------------------------------------------

# The format of releases before directories were bound to broker ids.
OLDER_IDENTITY = {
    "broker_id": 1,
    "node_uuid": "3f2a",
    "cluster_id": "here",
    "boot_id": "boot 1",
    "stopped_cleanly": False,
    "whole_since": 7,
    "synced_whole_since": 5,
    "store_revision": 20,
}


def test_a_directory_of_an_older_release_keeps_what_it_claims() -> None:
    machine = Machine()
    machine.disk.make_directory(PATH)
    write_checked(machine.disk, FILE, "broker", OLDER_IDENTITY, sync=True)
    write_checked(machine.disk, PATH / "store-revision", "store-revision", 30, sync=True)
    directory = machine.start()
    assert intact(directory) == (7, 5)
    assert (directory.identity.directory_id, directory.seen_revision) == ("3f2a", 30)
    assert not directory.identity.copied


def test_fields_of_a_later_release_are_ignored() -> None:
    machine = Machine()
    machine.disk.make_directory(PATH)
    write_checked(machine.disk, FILE, "broker", {**OLDER_IDENTITY, "later": [1]}, sync=True)
    assert intact(machine.start()) == (7, 5)


# -- copies --------------------------------------------------------------------------------


def test_a_restored_copy_by_hard_links_is_recognized(tmp_path: Path) -> None:
    """Its files are the same ones, also after the original is removed."""
    data, backup = tmp_path / "data", tmp_path / "backup"

    def start() -> DataDirectory:
        return DataDirectory.open(
            OsDisk(), data, broker_id=1, boot_id="boot 1", rng=random.Random(1)
        )

    start().registered(7)
    assert not start().identity.copied
    shutil.copytree(data, backup, copy_function=os.link)
    shutil.rmtree(data)
    backup.rename(data)
    assert start().identity.copied


def test_a_directory_without_its_replicas_starts_as_a_copy() -> None:
    machine = Machine()
    machine.start()
    machine.disk.make_directory(PATH / "replicas")
    machine.disk.write_atomically(PATH / "replicas" / "any", b"", sync=True)
    registered_at(machine, 7)
    machine.disk.remove_tree(PATH / "replicas")
    assert machine.start().identity.copied


def test_a_moved_directory_is_no_copy(tmp_path: Path) -> None:
    paths = (tmp_path / "before", tmp_path / "after")
    for path in paths:
        if path is paths[1]:
            paths[0].rename(path)
        directory = DataDirectory.open(
            OsDisk(), path, broker_id=1, boot_id="boot 1", rng=random.Random(1)
        )
        assert not directory.identity.copied
        directory.registered(7)


@pytest.mark.rule("broker-id-bound-to-directory")
def test_the_lock_of_a_directory_outlives_its_lock_file(tmp_path: Path) -> None:
    with hold_lock(tmp_path):
        for _ in range(2):
            with pytest.raises(DataDirectoryError, match="in use by another"), hold_lock(tmp_path):
                pass
            (tmp_path / "lock").unlink(missing_ok=True)
    with hold_lock(tmp_path):
        pass


def test_a_copy_is_recognized_until_it_has_registered() -> None:
    machine = Machine()
    registered_at(machine, 7)
    assert not machine.start().identity.copied
    machine.disk.restore(machine.disk.contents())
    assert machine.start().identity.copied
    directory = machine.start()
    assert directory.identity.copied
    directory.registered(9)
    assert not machine.start().identity.copied
