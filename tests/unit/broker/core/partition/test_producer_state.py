"""What a leader does with the batch of an idempotent producer."""

import json
from collections.abc import Callable, Sequence

import pytest

from tidelog.batch import NO_SEQUENCE, new_batch, new_fence, stamp
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, NO_PRODUCER_ID, BatchHeader, Codec
from tidelog_broker.core.partition import producer_state
from tidelog_broker.core.partition.producer_state import (
    LONGEST_DELIVERY_MS,
    MAX_SEQUENCE,
    NOBODY,
    CommittedProducer,
    CrowdedOut,
    Duplicate,
    ProducerStates,
    RememberedBatch,
)

ID = 7
NAMED = FIRST_NAMED_PRODUCER_ID + 3


def header(sequence: int, count: int = 1, *, producer: int = ID, epoch: int = 0) -> BatchHeader:
    return new_batch(
        b"r",
        codec=Codec.NONE,
        record_count=count,
        base_timestamp_ms=1,
        max_timestamp_ms=1,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    ).header


class Leader:
    """Appends what the states accept."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0
        self.now_ms = 1000

    def append(
        self, sequence: int, count: int = 1, *, producer: int = ID, epoch: int = 0
    ) -> Duplicate | None:
        wanted = header(sequence, count, producer=producer, epoch=epoch)
        duplicate = self.states.check(wanted)
        if duplicate is None:
            self.note(wanted)
        return duplicate

    def note(self, header: BatchHeader) -> None:
        self.states.note(
            header._replace(base_offset=self.end, leader_epoch=4, append_time_ms=self.now_ms)
        )
        self.end += header.record_count

    def fence(self, epoch: int, producer: int = NAMED) -> None:
        self.note(new_fence(producer, epoch, self.now_ms).header)

    def rejection(
        self, sequence: int, count: int = 1, *, producer: int = ID, epoch: int = 0
    ) -> ErrorCode:
        return code_of(lambda: self.append(sequence, count, producer=producer, epoch=epoch))

    def committed(self, high_watermark: int, *ids: int) -> list[tuple[int, int, int]]:
        return [p[:3] for p in self.states.committed(ids, high_watermark)]


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(TidelogError) as raised:
        call()
    return raised.value.code


@pytest.fixture
def leader() -> Leader:
    return Leader()


# -- sequences ---------------------------------------------------------------------------


def test_batches_that_follow_each_other_are_appended(leader: Leader) -> None:
    assert [leader.append(s, 10) for s in (0, 10, 20)] == [None, None, None]


def test_a_batch_without_a_producer_id_is_always_appended(leader: Leader) -> None:
    plain = header(-1, producer=NO_PRODUCER_ID, epoch=-1)
    assert leader.states.check(plain) is None
    leader.note(plain)
    assert len(leader.states) == 0


def test_a_repeated_batch_is_answered_with_its_first_append(leader: Leader) -> None:
    leader.append(0, 10)
    leader.append(10, 5)
    original = RememberedBatch(
        10, 5, base_offset=10, leader_epoch=4, append_time_ms=1000, producer_epoch=0
    )
    assert leader.append(10, 5) == Duplicate(original, 15)
    assert leader.end == 15


def test_the_last_five_batches_are_remembered(leader: Leader) -> None:
    for sequence in range(7):
        leader.append(sequence)
    answers = [leader.append(sequence) for sequence in range(7)]
    remembered = [a is not None and a.original is not None for a in answers]
    assert remembered == [False, False, True, True, True, True, True]


def test_an_older_batch_is_a_duplicate_that_ends_where_the_remembered_ones_begin(
    leader: Leader,
) -> None:
    for sequence in range(7):
        leader.append(sequence)
    assert leader.append(1) == Duplicate(None, 2)


def test_a_differently_split_duplicate_counts_as_committed_with_the_last_batch(
    leader: Leader,
) -> None:
    """It lies somewhere among the remembered batches."""
    leader.append(0, 10)
    assert leader.append(4, 3) == Duplicate(None, 10)
    assert leader.append(0, 3) == Duplicate(None, 10)


@pytest.mark.rule("gaps-and-old-producers-rejected")
def test_a_gap_is_rejected_until_the_batch_before_has_arrived(leader: Leader) -> None:
    leader.append(0, 10)
    assert leader.rejection(20, 10) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    leader.append(10, 10)
    assert leader.append(20, 10) is None


def test_a_batch_that_is_partly_in_the_log_is_rejected(leader: Leader) -> None:
    """As a duplicate it would count as written, and its other records would be lost."""
    leader.append(0, 10)
    assert leader.rejection(5, 10) is ErrorCode.INVALID_BATCH


@pytest.mark.rule("gaps-and-old-producers-rejected")
def test_an_unknown_producer_begins_at_0(leader: Leader) -> None:
    assert leader.rejection(3) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert leader.append(0) is None


def test_producers_do_not_disturb_each_other(leader: Leader) -> None:
    leader.append(0, producer=1)
    leader.append(0, producer=2)
    assert leader.append(1, producer=1) is None
    assert leader.rejection(2, producer=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE


@pytest.mark.parametrize(
    ("producer", "epoch", "sequence"), [(0, 0, 0), (-2, 0, 0), (ID, -1, 0), (ID, 0, -1)]
)
def test_an_impossible_id_epoch_or_sequence_is_rejected(
    leader: Leader, producer: int, epoch: int, sequence: int
) -> None:
    assert leader.rejection(sequence, producer=producer, epoch=epoch) is ErrorCode.INVALID_BATCH


# -- the wrap ----------------------------------------------------------------------------


def near_the_wrap(leader: Leader) -> Leader:
    """The next sequence is MAX_SEQUENCE - 4."""
    leader.note(header(MAX_SEQUENCE - 9, 5))
    return leader


def test_after_the_largest_sequence_comes_0(leader: Leader) -> None:
    near_the_wrap(leader).append(MAX_SEQUENCE - 4, 5)
    assert leader.rejection(1) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert leader.append(0) is None


def test_up_to_half_the_range_is_behind(leader: Leader) -> None:
    near_the_wrap(leader)
    assert leader.append(MAX_SEQUENCE - 4 - (1 << 30)) == Duplicate(None, 0)


def test_more_than_half_the_range_is_ahead(leader: Leader) -> None:
    near_the_wrap(leader)
    code = leader.rejection(MAX_SEQUENCE - 4 - (1 << 30) - 1)
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE


def test_a_batch_may_reach_over_the_wrap(leader: Leader) -> None:
    near_the_wrap(leader).append(MAX_SEQUENCE - 4, 8)
    assert leader.append(3) is None


def test_duplicates_are_recognized_over_the_wrap(leader: Leader) -> None:
    near_the_wrap(leader).append(MAX_SEQUENCE - 4, 8)
    leader.append(3)
    again = leader.append(MAX_SEQUENCE - 4, 8)
    assert again is not None
    assert again.original is not None
    older = leader.append(MAX_SEQUENCE - 100)
    assert older == Duplicate(None, 0)


# -- epochs ------------------------------------------------------------------------------


@pytest.mark.rule("gaps-and-old-producers-rejected")
def test_an_older_epoch_is_fenced(leader: Leader) -> None:
    leader.append(0, epoch=3)
    assert leader.rejection(1, epoch=2) is ErrorCode.FENCED_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_0_and_knows_no_older_batch(leader: Leader) -> None:
    leader.append(0)
    leader.append(1)
    assert leader.rejection(2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert leader.append(0, epoch=1) is None
    assert leader.append(1, epoch=1) is None


def test_a_named_producer_continues_in_a_newer_epoch(leader: Leader) -> None:
    leader.append(0, 10, producer=NAMED)
    assert leader.rejection(11, producer=NAMED, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert leader.append(10, 10, producer=NAMED, epoch=1) is None
    assert leader.rejection(20, producer=NAMED) is ErrorCode.FENCED_PRODUCER_EPOCH


def test_a_batch_of_a_previous_holder_is_a_duplicate_for_the_next(leader: Leader) -> None:
    for sequence in range(7):
        leader.append(sequence, producer=NAMED)
    assert leader.append(0, producer=NAMED, epoch=1) == Duplicate(None, 2)


def test_a_previous_holders_batch_is_not_taken_for_the_original_of_the_next(leader: Leader) -> None:
    leader.append(0, producer=NAMED)
    assert leader.append(0, producer=NAMED, epoch=1) == Duplicate(None, 1)


def test_a_fence_keeps_older_epochs_out_and_the_sequences_as_they_are(leader: Leader) -> None:
    leader.append(0, 10, producer=NAMED)
    leader.fence(epoch=2)
    assert leader.rejection(10, producer=NAMED, epoch=1) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert leader.append(10, producer=NAMED, epoch=2) is None


def test_a_fence_also_keeps_out_producers_that_never_wrote(leader: Leader) -> None:
    leader.fence(epoch=1)
    assert leader.rejection(0, producer=NAMED) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert leader.rejection(1, producer=NAMED, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert leader.append(0, producer=NAMED, epoch=1) is None


def test_a_fence_is_needed_only_where_an_older_epoch_could_still_write(leader: Leader) -> None:
    states = leader.states
    assert not states.needs_fence(NAMED, 0)
    assert states.needs_fence(NAMED, 1)
    leader.append(0, producer=NAMED, epoch=1)
    assert not states.needs_fence(NAMED, 1)
    assert states.needs_fence(NAMED, 2)
    assert code_of(lambda: states.needs_fence(NAMED, 0)) is ErrorCode.FENCED_PRODUCER_EPOCH


# -- several batches of one request ------------------------------------------------------


def test_batches_of_one_request_are_checked_one_after_another(leader: Leader) -> None:
    running = leader.states.running()
    for sequence in range(3):
        assert running.check(header(sequence)) is None
        running.note(header(sequence)._replace(base_offset=sequence))
    assert code_of(lambda: running.check(header(5))) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    again = running.check(header(1))
    assert again is not None
    assert again.next_offset == 2


def test_batches_of_a_request_are_unknown_before_they_are_in_the_log(leader: Leader) -> None:
    running = leader.states.running()
    running.note(header(0))
    assert leader.states.entry(ID) is None


# -- committed state ---------------------------------------------------------------------


def test_only_sequences_below_the_high_watermark_are_described(leader: Leader) -> None:
    for sequence in (0, 10, 20):
        leader.append(sequence, 10)
    sequences = [leader.committed(hw)[0][2] for hw in (0, 10, 20, 30)]
    assert sequences == [-1, 9, 19, 29]


def test_a_producer_without_a_committed_remembered_batch_is_not_described(leader: Leader) -> None:
    for sequence in range(6):
        leader.append(sequence)
    assert code_of(lambda: leader.committed(0, ID)) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert leader.committed(2, ID) == [(ID, 0, 1)]


def test_a_producer_that_cannot_be_described_does_not_fail_the_others(leader: Leader) -> None:
    leader.append(0, producer=ID + 1)
    for sequence in range(6):
        leader.append(sequence)
    assert leader.committed(1) == [(ID + 1, 0, 0)]


def test_only_requested_producers_are_described_by_id(leader: Leader) -> None:
    for producer in (NAMED, 3, 1):
        leader.append(0, producer=producer)
    assert [p[0] for p in leader.committed(3)] == [1, 3, NAMED]
    assert [p[0] for p in leader.committed(3, NAMED, 2, 1)] == [1, NAMED]


def test_a_fence_alone_has_no_sequence(leader: Leader) -> None:
    leader.fence(epoch=2)
    assert leader.states.committed((), 1) == [CommittedProducer(NAMED, 2, -1, 1000, 0)]


# -- expiry ------------------------------------------------------------------------------


def expire(leader: Leader, now_ms: int, *, at_ms: int, named: Sequence[int] = ()) -> int:
    """Expire producers that were silent for more than 400 ms."""
    return leader.states.expire(now_ms, 400, monotonic_ms=at_ms, named=named)


def test_a_silent_producer_expires_after_its_time(leader: Leader) -> None:
    leader.append(0)
    leader.now_ms = 1500
    leader.append(0, producer=8)
    assert [expire(leader, 1400, at_ms=at_ms) for at_ms in (0, LONGEST_DELIVERY_MS)] == [0, 0]
    assert [expire(leader, 1401, at_ms=at_ms) for at_ms in (0, LONGEST_DELIVERY_MS)] == [0, 1]
    assert leader.rejection(1) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert leader.append(1, producer=8) is None


def test_a_clock_jump_expires_no_producer_that_may_still_retry(
    leader: Leader,
) -> None:
    """The first batch of an unknown producer is appended, so its retry would be written twice."""
    leader.append(0)
    assert expire(leader, 1 << 40, at_ms=5) == 0
    assert expire(leader, 1 << 40, at_ms=5 + LONGEST_DELIVERY_MS - 1) == 0
    again = leader.append(0)
    assert again is not None


@pytest.mark.parametrize("meanwhile", ["the clock is put right", "it writes"])
def test_a_producer_found_active_again_has_its_full_time_again(
    leader: Leader, meanwhile: str
) -> None:
    leader.append(0)
    assert expire(leader, 1401, at_ms=0) == 0
    if meanwhile == "it writes":
        leader.append(1)
    else:
        assert expire(leader, 1400, at_ms=1) == 0
    assert expire(leader, 1401, at_ms=LONGEST_DELIVERY_MS) == 0
    assert expire(leader, 1401, at_ms=2 * LONGEST_DELIVERY_MS) == 1


def test_a_named_producer_does_not_expire_before_its_name(leader: Leader) -> None:
    leader.append(0, producer=NAMED)
    for at_ms in (0, LONGEST_DELIVERY_MS):
        assert expire(leader, 1 << 60, at_ms=at_ms, named=[NAMED]) == 0
    given_up_ms = 2 * LONGEST_DELIVERY_MS
    for at_ms, forgotten in ((given_up_ms, 0), (given_up_ms + LONGEST_DELIVERY_MS, 1)):
        assert expire(leader, 1 << 60, at_ms=at_ms) == forgotten
    assert leader.append(0, producer=NAMED) is None


def with_bounds(monkeypatch: pytest.MonkeyPatch, silent: int, recent: int) -> None:
    monkeypatch.setattr(producer_state, "MAX_UNNAMED_PRODUCERS", silent)
    monkeypatch.setattr(producer_state, "MAX_RECENT_UNNAMED_PRODUCERS", recent)


def known(leader: Leader) -> list[int]:
    return [producer for producer, _ in leader.states.entries]


def test_beyond_the_limit_the_longest_silent_producer_is_evicted(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bounds(monkeypatch, silent=2, recent=4)
    leader.append(0, producer=NAMED)
    for producer in (1, 2):
        leader.append(0, producer=producer)
    leader.append(1, producer=1)
    leader.now_ms += LONGEST_DELIVERY_MS + 1
    leader.append(0, producer=3)
    assert known(leader) == [NAMED, 1, 3]


def test_beyond_the_limit_no_producer_that_may_retry_is_evicted(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bounds(monkeypatch, silent=2, recent=4)
    for producer in (1, 2, 3):
        leader.append(0, producer=producer)
    leader.now_ms += LONGEST_DELIVERY_MS
    leader.append(0, producer=4)
    assert known(leader) == [1, 2, 3, 4]


def test_beyond_the_hard_limit_recent_producers_are_evicted_too(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bounds(monkeypatch, silent=2, recent=4)
    for producer in range(1, 6):
        leader.append(0, producer=producer)
    assert known(leader) == [2, 3, 4, 5]


def test_once_producers_are_silent_their_number_shrinks_to_the_limit(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bounds(monkeypatch, silent=2, recent=4)
    for producer in range(1, 5):
        leader.append(0, producer=producer)
    for producer in (5, 6):
        leader.now_ms += LONGEST_DELIVERY_MS + 1
        leader.append(0, producer=producer)
    assert known(leader) == [5, 6]


def test_evicted_producers_are_counted_by_the_time_since_their_last_write(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bounds(monkeypatch, silent=2, recent=4)
    for producer in range(1, 8):
        leader.append(0, producer=producer)
    assert leader.states.crowded_out == CrowdedOut(recent=3)
    leader.now_ms += LONGEST_DELIVERY_MS + 1
    leader.append(0, producer=8)
    assert leader.states.crowded_out == CrowdedOut(recent=3, older=2)


def test_expired_producers_do_not_count_as_evicted(leader: Leader) -> None:
    leader.append(0)
    for at_ms in (0, LONGEST_DELIVERY_MS):
        expire(leader, 1 << 40, at_ms=at_ms)
    assert not leader.states.entries
    assert leader.states.crowded_out == NOBODY


# -- the start of an epoch ---------------------------------------------------------------


def epoch_start(leader: Leader, producer: int = NAMED) -> int:
    (described,) = leader.states.committed((producer,), leader.end)
    return described.epoch_start_sequence


def test_the_first_epoch_begins_at_0(leader: Leader) -> None:
    leader.append(0, 3, producer=NAMED)
    leader.append(3, 3, producer=NAMED)
    assert epoch_start(leader) == 0


@pytest.mark.rule("client-names-producer-epoch")
def test_an_epoch_of_a_name_begins_where_the_one_before_it_ended(leader: Leader) -> None:
    leader.append(0, 3, producer=NAMED)
    for sequence in range(3, 13):
        leader.append(sequence, producer=NAMED, epoch=4)
    assert epoch_start(leader) == 3


def test_a_fence_begins_an_epoch_too(leader: Leader) -> None:
    leader.append(0, 3, producer=NAMED)
    leader.fence(epoch=1)
    leader.append(3, 3, producer=NAMED, epoch=1)
    assert epoch_start(leader) == 3


def test_an_epoch_start_wraps_with_the_sequences(leader: Leader) -> None:
    leader.note(header(MAX_SEQUENCE - 1, 2, producer=NAMED))
    leader.append(0, 1, producer=NAMED, epoch=1)
    assert epoch_start(leader) == 0


def test_an_epoch_without_a_name_begins_at_0(leader: Leader) -> None:
    leader.append(0, 3)
    leader.append(0, 3, epoch=1)
    assert epoch_start(leader, ID) == 0


# -- as a value --------------------------------------------------------------------------


def test_a_release_without_epoch_starts_reads_the_other_fields(leader: Leader) -> None:
    leader.append(0, 3, producer=NAMED, epoch=4)
    # An older release reads exactly six fields for each producer.
    batch = [0, 3, 0, 4, 1000, 4]
    assert leader.states.to_value()["producers"] == [[NAMED, 4, 2, 3, 1000, [batch]]]


def test_a_value_of_an_older_release_has_no_known_epoch_start(leader: Leader) -> None:
    leader.append(0, producer=NAMED)
    previous = ProducerStates.of_value({"producers": leader.states.to_value()["producers"]})
    assert previous.committed((NAMED,), 1) == [CommittedProducer(NAMED, 0, 0, 1000, NO_SEQUENCE)]


def test_states_go_through_json_unchanged(leader: Leader) -> None:
    for sequence in range(7):
        leader.append(sequence)
    leader.append(0, producer=NAMED)
    leader.fence(epoch=2)
    value = json.loads(json.dumps(leader.states.to_value()))
    assert ProducerStates.of_value(value).entries == leader.states.entries


def test_states_of_a_stamped_batch_are_those_of_its_header() -> None:
    batch = new_fence(NAMED, 2, 5)
    states = ProducerStates()
    states.note(stamp(batch, base_offset=8, leader_epoch=3, append_time_ms=6).header)
    entry = states.entry(NAMED)
    assert entry is not None
    assert (entry.producer_epoch, entry.end_offset, entry.last_append_time_ms) == (2, 9, 6)
