"""Where a stream continues, and the data loss that it reports."""

from __future__ import annotations

import pytest

from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.spark.data_loss import (
    Continuation,
    DataLossError,
    PartitionNow,
    TopicNow,
    Truncation,
    behind,
    continuation,
    to_verify,
)
from tidelog.spark.stream_offsets import ReadTo, TopicOffsets

SEA = TopicPartition("sea", 0)


def read(
    *partitions: ReadTo, topic_id: str = "id", revision: int = 5, as_of: int = 6
) -> dict[str, TopicOffsets]:
    return {"sea": TopicOffsets(topic_id, revision, dict(enumerate(partitions)), as_of)}


def now(
    *partitions: PartitionNow, topic_id: str = "id", revision: int = 5, as_of: int = 6
) -> dict[str, TopicNow]:
    return {"sea": TopicNow(topic_id, revision, dict(enumerate(partitions)), as_of)}


def where(found: Continuation) -> ReadTo:
    return found.offsets["sea"].partitions[0]


def test_without_loss_nothing_is_reported() -> None:
    found = continuation(read(ReadTo(7, 2)), now(PartitionNow(7, 9, 2)), {})
    assert (where(found), found.losses) == (ReadTo(7, 2), ())


def test_offsets_deleted_by_retention_are_reported() -> None:
    found = continuation(read(ReadTo(7, 2)), now(PartitionNow(12, 20, 2)), {})
    assert where(found) == ReadTo(12)
    assert found.losses == (
        "offsets 7 to 11 of sea/0 were deleted before they were read (by its retention): its log "
        "starts at 12",
    )


def test_records_already_read_may_be_deleted() -> None:
    found = continuation(read(ReadTo(7, 2)), now(PartitionNow(6, 20, 2)), {})
    assert found.losses == ()


def test_a_recreated_topic_is_read_from_its_start() -> None:
    found = continuation(
        read(ReadTo(7, 2)), now(PartitionNow(0, 3, 0), topic_id="new", revision=9), {}
    )
    assert where(found) == ReadTo(0)
    assert found.offsets["sea"].topic_id == "new"
    (loss,) = found.losses
    assert "was deleted and created again (its id was id, and is new)" in loss
    assert "records of the previous topic from offsets 0: 7 on" in loss


def test_metadata_of_a_lagging_broker_is_no_evidence_of_a_recreated_topic() -> None:
    previous = now(PartitionNow(0, 3, 0), topic_id="former", revision=2)
    assert behind(read(ReadTo(7, 2)), previous) == ["sea"]
    assert behind(read(ReadTo(7, 2)), now(PartitionNow(0, 3, 0), topic_id="n", revision=9)) == []
    assert behind({}, previous) == []


def test_metadata_of_a_lagging_broker_is_no_evidence_of_a_removed_partition() -> None:
    grown = read(ReadTo(7), ReadTo(3), as_of=8)
    assert behind(grown, now(PartitionNow(0, 9, 0), as_of=6)) == ["sea"]
    assert behind(grown, now(PartitionNow(0, 9, 0), as_of=9)) == []


def test_a_deleted_topic_is_reported() -> None:
    found = continuation(read(ReadTo(7, 2), ReadTo(3)), {}, {})
    assert found.offsets == {}
    assert found.losses == (
        "topic 'sea' (id id) was deleted: records from offsets 0: 7, 1: 3 on can no longer be read",
    )


def test_a_removed_partition_is_reported() -> None:
    found = continuation(read(ReadTo(7), ReadTo(3)), now(PartitionNow(0, 9, 0)), {})
    assert found.losses == ("sea/1 was removed: records from offset 3 on can no longer be read",)


def test_a_new_partition_is_read_from_its_start() -> None:
    found = continuation(read(ReadTo(7)), now(PartitionNow(0, 9, 0), PartitionNow(0, 4, 0)), {})
    assert found.offsets["sea"].partitions[1] == ReadTo(0)
    assert found.losses == ()


def test_a_new_topic_is_no_loss_whatever_retention_has_deleted() -> None:
    found = continuation({}, now(PartitionNow(4, 9, 0)), {})
    assert (where(found), found.losses) == (ReadTo(4), ())


def test_deletions_in_a_new_partition_of_a_known_topic_are_a_loss() -> None:
    new = PartitionNow(4, 9, 0, create_revision=7)
    found = continuation(read(ReadTo(7)), now(PartitionNow(0, 9, 0), new), {})
    assert found.losses[0].startswith("offsets 0 to 3 of sea/1 were deleted before they were read")


def test_an_old_partition_requested_later_is_read_from_what_retention_kept() -> None:
    old = PartitionNow(4, 9, 0, create_revision=6)
    found = continuation(read(ReadTo(7)), now(PartitionNow(0, 9, 0), old), {})
    assert found.offsets["sea"].partitions[1] == ReadTo(4)
    assert found.losses == ()


def test_a_recreated_partition_is_read_from_its_start() -> None:
    again = now(PartitionNow(0, 9, 4, create_revision=8), as_of=8)
    assert to_verify(read(ReadTo(7, 2)), again) == {}
    found = continuation(read(ReadTo(7, 2)), again, {})
    assert where(found) == ReadTo(0)
    assert found.losses == (
        "sea/0 was removed and added again: records of the previous partition from offset 7 "
        "on can no longer be read; the new partition is read from its start",
    )
    # Reported once.
    assert continuation(found.offsets, again, {}).losses == ()


def test_a_truncated_log_is_read_from_the_truncation() -> None:
    found = continuation(read(ReadTo(7, 2)), now(PartitionNow(0, 9, 4)), {SEA: Truncation(5, 4, 1)})
    assert where(found) == ReadTo(5, 1)
    assert found.losses == (
        "the log of sea/0 was truncated by an unclean election: at least the records that were "
        "read at offsets 5 to 6 (the last in leader epoch 2) are not in the log of the leader of "
        "epoch 4, which has other records there, or none",
    )


def test_only_a_newer_leader_can_have_truncated_read_records() -> None:
    assert to_verify(read(ReadTo(7, 2)), now(PartitionNow(0, 9, 3))) == {SEA: ReadTo(7, 2)}
    assert to_verify(read(ReadTo(7, 2)), now(PartitionNow(0, 9, 2))) == {}


@pytest.mark.rule("stream-offsets-detect-losses")
def test_a_deposed_leader_is_no_evidence_of_truncation() -> None:
    assert to_verify(read(ReadTo(7, 2)), now(PartitionNow(0, 3, 1))) == {}
    assert continuation(read(ReadTo(7, 2)), now(PartitionNow(0, 3, 1)), {}).losses == ()


def test_nothing_is_compared_where_nothing_was_read() -> None:
    assert to_verify(read(ReadTo(7, NO_EPOCH)), now(PartitionNow(0, 9, 3))) == {}
    assert to_verify(read(ReadTo(7, 2)), now(PartitionNow(7, 9, 3))) == {}
    assert to_verify(read(ReadTo(7, 2)), now(PartitionNow(0, 9, 3), topic_id="other")) == {}


def test_the_error_has_the_next_step() -> None:
    assert DataLossError(["this is gone", "that is gone"]).message == (
        "this is gone; that is gone. To continue with the remaining records, set failOnDataLoss "
        "to false; to read everything again, begin with a new checkpointLocation"
    )
