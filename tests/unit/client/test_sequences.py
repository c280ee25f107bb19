import doctest

from tidelog.client import sequences
from tidelog.client.sealed_batch import SealedBatch
from tidelog.client.sequences import Identity, Numbering, WriteOutcome
from tidelog.model import TopicPartition
from tidelog.record_batch import encode_records

ID, NEXT = Identity(7, 0), Identity(8, 0)


def batches(count: int, records: int = 1) -> list[SealedBatch]:
    encoded = encode_records([b"x"] * records, timestamps_ms=1)
    return [
        SealedBatch(TopicPartition("sea", 0), number, encoded, 1000, lambda _: None)
        for number in range(count)
    ]


def numbered(count: int, *, named: bool = False) -> tuple[Numbering, list[SealedBatch]]:
    numbering = Numbering(named)
    numbering.adopt(ID)
    if named:
        numbering.positioned(0)
    made = batches(count)
    for batch in made:
        numbering.number(batch)
    return numbering, made


def sequence_of(batch: SealedBatch) -> int | None:
    return None if batch.batch is None else batch.batch.header.base_sequence


def test_the_docstring_examples_hold() -> None:
    assert doctest.testmod(sequences).failed == 0


def test_after_the_last_sequence_comes_0() -> None:
    numbering = Numbering(named=True)
    numbering.adopt(ID)
    numbering.positioned(2**31 - 2)
    made = batches(2, records=2)
    for batch in made:
        numbering.number(batch)
    assert list(map(sequence_of, made)) == [2**31 - 2, 0]


def test_at_most_five_batches_are_without_an_outcome() -> None:
    numbering, made = numbered(5)
    assert not numbering.may_number
    numbering.settled(made[0], WriteOutcome.WRITTEN)
    assert numbering.may_number


def test_at_most_five_batches_are_numbered_from_the_first_without_an_outcome_on() -> None:
    numbering, made = numbered(4)
    for batch in made[1:]:
        numbering.settled(batch, WriteOutcome.WRITTEN)
    assert numbering.room == 1
    numbering.settled(made[0], WriteOutcome.WRITTEN)
    assert numbering.room == 5


def test_the_last_rejected_batch_frees_its_sequence_for_the_next() -> None:
    numbering, made = numbered(2)
    numbering.settled(made[1], WriteOutcome.NOT_WRITTEN)
    assert numbering.next_sequence == 1


def test_behind_a_rejected_batch_nothing_is_numbered_until_it_is_repaired() -> None:
    numbering, made = numbered(3)
    numbering.settled(made[0], WriteOutcome.WRITTEN)
    numbering.settled(made[1], WriteOutcome.NOT_WRITTEN)
    assert not numbering.may_number
    numbering.reclaim_sequences()
    assert numbering.may_number
    assert (numbering.identity, numbering.next_sequence) == (ID, 1)
    assert sequence_of(made[2]) is None


def test_a_batch_in_doubt_behind_a_rejected_one_needs_a_new_id() -> None:
    numbering, made = numbered(2)
    made[1].in_doubt = True
    numbering.settled(made[0], WriteOutcome.NOT_WRITTEN)
    numbering.reclaim_sequences()
    assert sequence_of(made[1]) is None
    assert not made[1].in_doubt
    assert numbering.wants_identity(ID)
    numbering.adopt(NEXT)
    assert numbering.may_number


def test_a_named_producer_keeps_a_batch_in_doubt_behind_a_rejected_one() -> None:
    """Its sequences will be used again, and then a late copy would be accepted."""
    numbering, made = numbered(2, named=True)
    made[1].in_doubt = True
    numbering.settled(made[0], WriteOutcome.NOT_WRITTEN)
    numbering.reclaim_sequences()
    assert sequence_of(made[1]) == 1
    assert not numbering.may_number


def test_a_batch_in_doubt_before_a_leader_with_unknown_state_keeps_its_sequence() -> None:
    numbering, made = numbered(3)
    made[0].in_doubt = True
    numbering.mark_identity_unusable()
    numbering.reclaim_sequences()
    assert list(map(sequence_of, made)) == [0, None, None]
    assert not numbering.wants_identity(ID)
    numbering.settled(made[0], WriteOutcome.UNKNOWN)
    numbering.reclaim_sequences()
    assert numbering.wants_identity(ID)


def test_answers_may_come_in_any_order() -> None:
    numbering, made = numbered(3)
    numbering.settled(made[1], WriteOutcome.WRITTEN)
    numbering.settled(made[0], WriteOutcome.WRITTEN)
    numbering.settled(made[2], WriteOutcome.NOT_WRITTEN)
    assert numbering.next_sequence == 2
