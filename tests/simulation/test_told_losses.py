"""What clients are informed of about losses is checked in both directions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from simulation.partition_id import PartitionId
from simulation.replicas import Committed, Loss
from simulation.shadow_logs import Entry
from simulation.told_losses import ToldLosses
from simulation.violation import Violation
from tidelog.client.log_continuity import LogTruncatedError
from tidelog.client.unclean_elections import UncleanElection
from tidelog.model import Record, TopicPartition

SEA = TopicPartition("sea", 0)
PLACE = PartitionId("id-of-sea", 0)
# The election in epoch 5 gave up what was written from offset 10 on; offset 10 was written again.
LOSS = Loss(PLACE, leader_epoch=5, first_offset=10, end_offset=12)


def reported_losses(*losses: Loss) -> ToldLosses:
    committed = Committed()
    committed.log.add(Entry(0, 10, 3, 0))
    committed.log.add(Entry(10, 11, 5, 0))
    known = SimpleNamespace(
        losses=list(losses),
        name_of=lambda _: SEA,
        store=SimpleNamespace(
            first_epochs={},
            before_unclean={(PLACE, loss.leader_epoch): None for loss in losses},
            topics={SEA.topic: SimpleNamespace(topic_id=PLACE.topic_id)},
        ),
        replicas=SimpleNamespace(committed_of=lambda _: committed),
    )
    return ToldLosses(cast(Any, known))


def record(offset: int, leader_epoch: int) -> Record:
    return Record(SEA.topic, 0, offset, 0, None, b"1", (), leader_epoch)


def test_reading_on_behind_a_loss_without_a_word_is_found() -> None:
    told = reported_losses(LOSS)
    told.read("c1", PLACE, [record(11, 3)])
    with pytest.raises(Violation, match="truncation_passed_over"):
        told.read("c1", PLACE, [record(12, 5)])


def test_who_has_sought_since_passes_nothing_over() -> None:
    told = reported_losses(LOSS)
    told.read("c1", PLACE, [record(11, 3)])
    told.sought("c1", PLACE)
    told.read("c1", PLACE, [record(12, 5)])


def test_who_read_nothing_that_was_given_up_passes_nothing_over() -> None:
    told = reported_losses(LOSS)
    told.read("c1", PLACE, [record(9, 3), record(10, 5)])
    assert told.untold("c1", only_where_later=False) is None


def test_a_client_is_to_be_informed_of_a_loss_that_it_had_acknowledged() -> None:
    told = reported_losses(LOSS)
    told.acknowledged("p1", PLACE, 11, 3)
    assert told.untold("p1", only_where_later=False) == LOSS
    told.election_reported("p1", [PLACE], UncleanElection(SEA, 5, 12, 3))
    assert told.untold("p1", only_where_later=False) is None


def test_a_client_without_the_new_leader_need_not_be_informed_yet() -> None:
    told = reported_losses(LOSS)
    told.acknowledged("p1", PLACE, 11, 3)
    assert told.untold("p1", only_where_later=True) is None
    told.acknowledged("p1", PLACE, 12, 5)
    assert told.untold("p1", only_where_later=True) == LOSS


def test_an_election_that_there_was_not_is_found() -> None:
    with pytest.raises(Violation, match="told_of_no_election"):
        reported_losses(LOSS).election_reported("c1", [PLACE], UncleanElection(SEA, 6, 12, 3))


def test_a_truncation_that_there_was_not_is_found() -> None:
    with pytest.raises(Violation, match="told_of_no_truncation"):
        reported_losses(LOSS).truncation_reported("c1", [PLACE], LogTruncatedError(SEA, 10, 3, 5))


def test_a_truncation_that_there_was_is_none() -> None:
    reported_losses(LOSS).truncation_reported("c1", [PLACE], LogTruncatedError(SEA, 12, 3, 5))


def test_a_reader_may_hear_late_of_a_partition_that_was_added_twice() -> None:
    told = reported_losses()
    told._invariants.store.first_epochs[PLACE] = [5, 7]
    told.truncation_reported("c1", [PLACE], LogTruncatedError(SEA, 10, 3, 5))
    with pytest.raises(Violation, match="told_of_no_truncation"):
        told.truncation_reported("c1", [PLACE], LogTruncatedError(SEA, 10, 5, 6))
