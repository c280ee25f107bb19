"""When a disk counts as refusing, and when as taking again."""

import asyncio
import errno
from pathlib import PurePath

from tidelog.state_changes.event import Cause, Kind
from tidelog_broker.log.errors import LogStorageError
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replicas.disk_refusals import READ_EXPIRY_MS, STEADY_MS, DiskRefusals
from unit.broker.broker_parts import KEY, Replicas
from unit.broker.fake_log import NAME, epoch_of, state

OTHER = ReplicaKey("other", 0)
FULL = LogStorageError(PurePath("log"), errno.ENOSPC, "append to")


def refusing(at_ms: int = 0, what: str = "written") -> DiskRefusals:
    refusals = DiskRefusals()
    assert refusals.refused(KEY, Cause.DISK_FULL, what, "no room", at_ms)
    return refusals


def over(refusals: DiskRefusals, now_ms: int) -> list[ReplicaKey]:
    return [key for key, _ in refusals.over(now_ms)]


def test_only_the_first_refusal_is_news() -> None:
    refusals = refusing()
    assert not refusals.refused(KEY, Cause.DISK_FULL, "written", "no room", 5)
    assert refusals.refused(OTHER, Cause.DISK_FULL, "written", "no room", 5)


def test_it_lasts_since_the_first_of_them() -> None:
    refusals = refusing(at_ms=3)
    refusals.refused(KEY, Cause.DISK_FULL, "written", "still no room", 50)
    refusal = refusals.of(KEY)
    assert refusal is not None
    assert (refusal.since_ms, refusal.message) == (3, "still no room")


def test_it_is_over_a_while_after_a_write_has_succeeded() -> None:
    refusals = refusing()
    refusals.took(KEY, "written")
    assert over(refusals, STEADY_MS - 1) == []
    assert over(refusals, STEADY_MS) == [KEY]
    assert not refusals


def test_small_writes_between_large_ones_that_are_refused_do_not_end_it() -> None:
    refusals = refusing()
    refusals.took(KEY, "written")
    refusals.refused(KEY, Cause.DISK_FULL, "written", "no room", STEADY_MS)
    assert over(refusals, 10 * STEADY_MS) == []


def test_as_long_as_nobody_writes_it_stands() -> None:
    assert over(refusing(), 1_000_000) == []


def test_a_sync_that_succeeds_says_nothing_of_writes() -> None:
    refusals = refusing(what="written")
    refusals.took(KEY, "synced")
    assert over(refusals, 1_000_000) == []


def test_a_read_that_nobody_tries_again_is_forgotten() -> None:
    refusals = refusing(what="read")
    assert over(refusals, READ_EXPIRY_MS - 1) == []
    assert over(refusals, READ_EXPIRY_MS) == [KEY]


async def test_a_full_disk_is_told_once_and_once_that_it_takes_again() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    await asyncio.sleep(1)  # at 0 nothing is known to have been requested
    for _ in range(3):
        replicas.manager.replica_failed(partition, FULL)
    (refused,) = replicas.told(Kind.DISK_REFUSED)
    assert (refused.cause, refused.name, refused.broker) == (Cause.DISK_FULL, NAME, 1)
    assert refused.details["what"] == "written"
    replicas.manager.disk.took(KEY, "written")
    await asyncio.sleep(STEADY_MS / 1000)
    replicas.manager.disk.judge()
    (again,) = replicas.told(Kind.DISK_TAKES_AGAIN)
    assert again.details == {"what": "written", "refused_ms": STEADY_MS}
    assert again.change_id == refused.change_id != ""
    assert again.duration_ms == STEADY_MS


async def test_what_a_disk_refuses_is_told_with_what_is_known_of_its_replica() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    replicas.manager.replica_failed(partition, FULL)
    (told,) = replicas.told(Kind.DISK_REFUSED)
    assert (told.broker_epoch, told.controller_epoch) == (epoch_of(1), state().controller_epoch)
    assert (told.leader_epoch, told.revision) == (partition.leader_epoch, 10)


async def test_a_replica_that_is_not_here_any_more_is_forgotten() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    replicas.manager.replica_failed(partition, FULL)
    replicas.manager._remove(partition, delete=True)
    assert not replicas.manager.disk
