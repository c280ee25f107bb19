"""The producers below a log's start are stored twice, because no batch shows them any more."""

import pytest
from structlog.testing import capture_logs

from tidelog_broker.log.producer_history import COPY_SUFFIX, SNAPSHOT_SUFFIX, snapshot_name
from unit.broker.log.builders import START_MS
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.log.producer_logs import BATCHES, expected, expired, known, reopen, spoil


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.mark.parametrize("damage", ["removed", "a bit flipped"])
def test_either_copy_at_the_start_is_enough_and_repairs_the_other(
    disk: MemoryDisk, damage: str
) -> None:
    """No batch shows the producers below, so their next batches would be written twice."""
    expired(disk, BATCHES, up_to=6).flush()
    for suffix in (SNAPSHOT_SUFFIX, COPY_SUFFIX, SNAPSHOT_SUFFIX):
        spoil(disk, 6, suffix, damage)
        disk.power_failure()
        log = reopen(disk, recovery_point=7)
        assert (log.log_start_offset, known(log)) == (6, expected(BATCHES))
        assert log.producers.below_start().entries == expected(BATCHES[:6])


def test_if_both_copies_are_damaged_an_error_is_logged_and_the_log_opens(disk: MemoryDisk) -> None:
    expired(disk, BATCHES, up_to=6).flush()
    for suffix in (SNAPSHOT_SUFFIX, COPY_SUFFIX):
        spoil(disk, 6, suffix)
    with capture_logs() as lines:
        assert reopen(disk, recovery_point=7).log_start_offset == 6
    (said,) = [line for line in lines if line["event"] == "producers_below_start_lost"]
    assert (said["log_level"], said["log_start_offset"]) == ("error", 6)


def test_both_copies_are_deleted_when_the_log_start_moves(disk: MemoryDisk) -> None:
    log = expired(disk, BATCHES, up_to=4)
    assert log.log_start_offset == 4
    log.delete_old_segments(START_MS, up_to=6)
    copies = [path.name for path in disk.names if path.name.endswith(COPY_SUFFIX)]
    assert (log.log_start_offset, copies) == (6, [snapshot_name(6, COPY_SUFFIX)])
