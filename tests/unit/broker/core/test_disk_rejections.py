"""When a disk counts as rejecting operations, and when it has recovered."""

import asyncio
import errno
from pathlib import PurePath

from tidelog.state_changes.event import Cause, Kind
from tidelog_broker.core.disk_rejections import (
    READ_EXPIRY_MS,
    STEADY_AFTER_HANG_MS,
    STEADY_MS,
    DiskRejections,
)
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.log_errors import LogStorageError
from unit.broker.broker_parts import KEY, Replicas
from unit.broker.fake_log import NAME, epoch_of, state

OTHER = ReplicaKey("other", 0)
FULL = LogStorageError(PurePath("log"), errno.ENOSPC, "append to")


def rejecting(at_ms: int = 0, what: str = "written") -> DiskRejections:
    rejections = DiskRejections()
    assert rejections.rejected(KEY, Cause.DISK_FULL, what, "no room", at_ms)
    return rejections


def over(rejections: DiskRejections, now_ms: int) -> list[ReplicaKey]:
    return [key for key, _ in rejections.over(now_ms)]


def test_only_the_first_rejection_is_new() -> None:
    rejections = rejecting()
    assert not rejections.rejected(KEY, Cause.DISK_FULL, "written", "no room", 5)
    assert rejections.rejected(OTHER, Cause.DISK_FULL, "written", "no room", 5)


def test_a_rejection_lasts_since_the_first_of_them() -> None:
    rejections = rejecting(at_ms=3)
    rejections.rejected(KEY, Cause.DISK_FULL, "written", "still no room", 50)
    rejection = rejections.of(KEY)
    assert rejection is not None
    assert (rejection.since_ms, rejection.message) == (3, "still no room")


def test_a_rejection_is_over_a_while_after_a_successful_write() -> None:
    rejections = rejecting()
    rejections.took(KEY, "written", 0)
    assert over(rejections, STEADY_MS - 1) == []
    assert over(rejections, STEADY_MS) == [KEY]
    assert not rejections


def test_what_hung_counts_as_rejected_until_it_returns() -> None:
    rejections = DiskRejections()
    rejections.rejected(KEY, Cause.DISK_ERROR, "synced", "it hangs", 0, STEADY_AFTER_HANG_MS)
    returned_ms = 10 * STEADY_AFTER_HANG_MS
    for passed_ms in (0, 5):
        rejections.took(KEY, "synced", returned_ms + passed_ms)
    assert over(rejections, returned_ms + STEADY_AFTER_HANG_MS - 1) == []
    assert over(rejections, returned_ms + STEADY_AFTER_HANG_MS) == [KEY]


def test_small_writes_between_rejected_large_ones_do_not_end_a_rejection() -> None:
    rejections = rejecting()
    rejections.took(KEY, "written", 0)
    rejections.rejected(KEY, Cause.DISK_FULL, "written", "no room", STEADY_MS)
    assert over(rejections, 10 * STEADY_MS) == []


def test_a_rejection_stays_while_nothing_is_written() -> None:
    assert over(rejecting(), 1_000_000) == []


def test_a_successful_sync_does_not_prove_that_writes_succeed() -> None:
    rejections = rejecting(what="written")
    rejections.took(KEY, "synced", 0)
    assert over(rejections, 1_000_000) == []


def test_a_failed_read_that_is_not_retried_expires() -> None:
    rejections = rejecting(what="read")
    assert over(rejections, READ_EXPIRY_MS - 1) == []
    assert over(rejections, READ_EXPIRY_MS) == [KEY]


async def test_a_full_disk_and_its_recovery_emit_one_event_each() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    await asyncio.sleep(1)  # at 0 nothing is known to have been requested
    for _ in range(3):
        replicas.manager.replica_failed(partition, FULL)
    (rejected,) = replicas.events(Kind.DISK_REFUSED)
    assert (rejected.cause, rejected.name, rejected.broker) == (Cause.DISK_FULL, NAME, 1)
    assert rejected.details["what"] == "written"
    replicas.manager.disk.took(KEY, "written")
    await asyncio.sleep(STEADY_MS / 1000)
    replicas.manager.disk.judge()
    (again,) = replicas.events(Kind.DISK_RECOVERED)
    assert again.details == {"what": "written", "refused_ms": STEADY_MS}
    assert again.change_id == rejected.change_id != ""
    assert again.duration_ms == STEADY_MS


async def test_the_event_of_a_rejection_has_the_known_state_of_its_replica() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    replicas.manager.replica_failed(partition, FULL)
    (event,) = replicas.events(Kind.DISK_REFUSED)
    assert (event.broker_epoch, event.controller_epoch) == (epoch_of(1), state().controller_epoch)
    assert (event.leader_epoch, event.revision) == (partition.leader_epoch, 10)


async def test_a_removed_replica_is_forgotten() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    replicas.manager.replica_failed(partition, FULL)
    replicas.manager.remove(partition, delete=True)
    assert not replicas.manager.disk


def test_a_disk_that_hung_reports_how_long_it_still_counts_as_rejecting() -> None:
    rejections = DiskRejections()
    assert rejecting(0).of(KEY).hang_over_in_ms(10) is None  # type: ignore[union-attr]
    rejections.rejected(KEY, Cause.DISK_ERROR, "synced", "hangs", 0, STEADY_AFTER_HANG_MS)
    hung = rejections.of(KEY)
    assert hung is not None
    assert hung.hang_over_in_ms(5_000) == 0
    rejections.took(KEY, "synced", 9_000)
    assert hung.hang_over_in_ms(19_000) == STEADY_AFTER_HANG_MS - 10_000
    rejections.rejected(KEY, Cause.DISK_ERROR, "synced", "hangs", 20_000, STEADY_AFTER_HANG_MS)
    assert hung.hang_over_in_ms(20_500) == 0
