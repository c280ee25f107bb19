"""Two logs have equal digests exactly where they hold the same batches, whatever was appended,
cut, rolled, deleted and reopened (docs/adr/0002).
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidelog.batch import new_damaged_batch
from tidelog.model import Batch, BatchHeader
from tidelog_broker.core.partition import range_digest
from tidelog_broker.core.partition.range_digest import (
    BatchSummary,
    LogDigests,
    RangeDigest,
    RangeSums,
    batch_digest,
    first_difference,
)
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from unit.broker.log.builders import START_MS, batch_at, open_log, read_clean_logs
from unit.broker.log.memory_disk import MemoryDisk

RANGE = 8
BATCHES = st.lists(st.integers(1, 11), min_size=1, max_size=6)


def batches_after(offset: int, counts: list[int], epoch: int, seed: int) -> list[Batch]:
    made = []
    for count in counts:
        records = bytes([seed % 251, offset % 251])
        made.append(batch_at(offset, count=count, epoch=epoch, records=records))
        offset += count
    return made


class Held:
    """The log, read from the disk."""

    def __init__(self, log: Log) -> None:
        self.start = log.log_start_offset
        self.headers = list(log.headers(0, 1 << 40))

    def ranges(self) -> set[tuple[int, int]]:
        """Each range, ending at each batch in it."""
        starts = {h.base_offset - h.base_offset % RANGE for h in self.headers}
        ends = [h.next_offset for h in self.headers if h.base_offset >= self.start]
        found = {(start, end) for start in starts for end in ends if start < end < start + 20}
        return {(start, end) for start, end in found if start >= self.start}

    def within(self, start: int, end: int) -> list[BatchHeader]:
        return [h for h in self.headers if start <= h.base_offset < end]

    def digest(self, start: int, end: int) -> RangeDigest:
        return RangeDigest(start, end, sum(map(batch_digest, self.within(start, end))) % (1 << 64))


class Replica:
    """`small` means many short segments, and retention that deletes all but the last one."""

    def __init__(self, *, small: bool) -> None:
        self.disk = MemoryDisk()
        self.config = LogConfig(
            segment_bytes=250 if small else 1 << 20,
            segment_ms=1 << 40,
            retention_bytes=400,
            index_interval_bytes=100,
        )
        self.reopen()

    def reopen(self) -> None:
        self.log = open_log(self.disk, config=self.config)
        self.log.digest_ranges(RANGE)


class TwoReplicas(RuleBasedStateMachine):
    """A leader and a follower whose logs roll at different places."""

    @initialize()
    def begin(self) -> None:
        self.leader, self.follower = Replica(small=False), Replica(small=True)
        self.epoch = 0

    @rule(counts=BATCHES, at_once=st.booleans(), seed=st.integers(0, 250))
    def append(self, counts: list[int], at_once: bool, seed: int) -> None:
        """Append at the leader. The follower copies missing batches one by one or together."""
        leader, follower = self.leader.log, self.follower.log
        leader.append(batches_after(leader.log_end_offset, counts, self.epoch, seed))
        batches = [
            b for b in read_clean_logs(leader) if b.header.base_offset >= follower.log_end_offset
        ]
        groups = [batches] if at_once else [[batch] for batch in batches]
        if batches and batches[0].header.base_offset == follower.log_end_offset:
            for group in groups:
                follower.append(group)

    @rule(counts=BATCHES, seed=st.integers(0, 250))
    def diverge(self, counts: list[int], seed: int) -> None:
        """Each replica appends its own batches in one epoch."""
        end = self.leader.log.log_end_offset
        if self.follower.log.log_end_offset == end:
            self.leader.log.append(batches_after(end, counts, self.epoch, seed))
            self.follower.log.append(batches_after(end, counts, self.epoch, seed + 1))

    @rule(back=st.integers(0, 30), which=st.sampled_from(["leader", "follower", "both"]))
    def cut(self, back: int, which: str) -> None:
        self.epoch += 1
        for replica in self._of(which):
            log = replica.log
            log.truncate_to(max(log.log_start_offset, log.log_end_offset - back))

    @rule(which=st.sampled_from(["leader", "follower", "both"]))
    def restart(self, which: str) -> None:
        for replica in self._of(which):
            replica.log.flush()
            replica.log.close()
            replica.reopen()

    @rule()
    def delete_old(self) -> None:
        for replica in (self.leader, self.follower):
            replica.log.delete_old_segments(START_MS, up_to=replica.log.log_end_offset)

    @rule(offset=st.integers(0, 40))
    def copy_again(self, offset: int) -> None:
        self.follower.log.reset_to(self.leader.log.log_start_offset + offset)

    @rule(which=st.sampled_from(["leader", "follower", "both"]))
    def read_missing_ranges(self, which: str) -> None:
        for replica in self._of(which):
            part = replica.log.digests.to_read()
            if part is not None and part[0] >= replica.log.log_start_offset:
                replica.log.digests.read(Held(replica.log).digest(*part), *part)
                assert replica.log.digests.to_read() is None

    @rule(most=st.integers(1, 5))
    def read_again_after_a_start(self, most: int) -> None:
        log, held = self.follower.log, Held(self.follower.log)
        for _ in range(most):
            part = log.digests.to_read_again(log.log_start_offset)
            if part is None:
                break
            start, bound = part
            assert log.log_start_offset <= start < bound <= log.log_end_offset
            end = max((h.next_offset for h in held.within(start, bound)), default=0)
            log.digests.read_again(start, held.digest(start, end) if end else None)
            assert log.digests.to_read_again(log.log_start_offset) != part

    @rule(which=st.sampled_from(["leader", "follower", "both"]))
    def scrub(self, which: str) -> None:
        """No range on the disk differs from its digest in memory."""
        for replica in self._of(which):
            log = replica.log
            sums = RangeSums(RANGE, log.log_start_offset)
            for checked in [*sums.add(Held(log).headers), sums.open]:
                if checked.digest is not None:
                    assert log.digests.scrubbed(checked.digest) is None

    @rule(again=st.booleans())
    def report(self, again: bool) -> None:
        digests = self.follower.log.digests
        if again:
            digests.report_again()
        end, start = self.follower.log.log_end_offset, self.follower.log.log_start_offset
        for report in digests.reports(end, start, 100):
            digests.reported(report)
        clean_state = digests.reports(end, start, 100)
        assert clean_state == []

    def _of(self, which: str) -> list[Replica]:
        both = {"leader": [self.leader], "follower": [self.follower]}
        return both.get(which, [self.leader, self.follower])

    @invariant()
    def memory_agrees_with_the_log(self) -> None:
        for replica in (self.leader, self.follower):
            held = Held(replica.log)
            for start, end in held.ranges():
                assert replica.log.digests.of(start, end) in (None, held.digest(start, end))
                appended = replica.log.digests.appended_in(start, end)
                assert appended in (None, held.digest(start, end))

    @invariant()
    def reports_are_of_what_the_log_holds(self) -> None:
        log, held = self.follower.log, Held(self.follower.log)
        for report in log.digests.reports(log.log_end_offset, log.log_start_offset, 100):
            assert report == held.digest(report.start, report.end)
        assert log.digests.reports(log.log_start_offset, log.log_start_offset, 100) == []

    @invariant()
    def digests_are_equal_where_the_batches_are(self) -> None:
        own, other = Held(self.leader.log), Held(self.follower.log)
        for start, end in own.ranges() & other.ranges():
            are_equal = own.within(start, end) == other.within(start, end)
            assert (own.digest(start, end) == other.digest(start, end)) == are_equal


TwoReplicas.TestCase.settings = settings(max_examples=120, stateful_step_count=20, deadline=None)
TestTwoReplicas = TwoReplicas.TestCase


def digests_with(counts: list[int], *, range_offsets: int = RANGE) -> LogDigests:
    digests = LogDigests(range_offsets, 0)
    digests.appended(batches_after(0, counts, 1, 1))
    return digests


def test_a_batch_belongs_to_the_range_of_its_first_offset() -> None:
    digests = digests_with([5, 7, 9, 2])
    batches = batches_after(0, [5, 7, 9, 2], 1, 1)
    first = digests.of(0, 12)
    assert first is not None
    assert first.value == sum(batch_digest(b.header) for b in batches[:2]) % (1 << 64)
    assert digests.of(8, 21) is not None
    assert digests.of(16, 23) is not None


def test_nothing_is_reported_before_it_is_committed() -> None:
    digests = digests_with([5, 7, 9, 2])
    assert [(r.start, r.end) for r in digests.reports(20, 0, 10)] == [(0, 12)]
    assert [(r.start, r.end) for r in digests.reports(23, 0, 10)] == [(0, 12), (8, 21), (16, 23)]
    assert len(digests.reports(23, 0, 2)) == 2


def test_a_reported_range_is_not_reported_again_until_it_changes() -> None:
    digests = digests_with([5, 7, 9, 2])
    for report in digests.reports(23, 0, 10):
        digests.reported(report)
    assert not digests.has_reports(0)
    digests.appended([batch_at(23, count=1)])
    assert digests.has_reports(0)
    assert digests.reports(23, 0, 10) == []
    assert [(r.start, r.end) for r in digests.reports(24, 0, 10)] == [(16, 24)]


def test_a_scrub_finding_is_not_reported_once_its_range_has_grown() -> None:
    digests = digests_with([5])
    found = digests.of(0, 5)
    assert found is not None
    digests.scrubbed(found)
    digests.appended([batch_at(5, count=1)])
    assert digests.reports(5, 0, 10) == [found]
    (report,) = digests.reports(6, 0, 10)
    assert (report.start, report.end) == (0, 6)
    digests.reported(report)
    assert digests.reports(6, 0, 10) == []


def test_a_range_partly_deleted_by_retention_is_not_reported() -> None:
    digests = digests_with([5, 7, 9, 2])
    assert [r.start for r in digests.reports(23, 8, 10)] == [8, 16]


def test_a_range_with_a_damaged_batch_is_not_compared() -> None:
    digests = digests_with([5, 7, 9])
    data = new_damaged_batch(
        b"x", first_offset=21, next_offset=22, leader_epoch=1, append_time_ms=1
    )
    digests.appended([data, batch_at(22), batch_at(23), batch_at(24)])
    assert digests.of(16, 24) is None
    assert [r.start for r in digests.reports(25, 0, 10)] == [0, 8, 24]


def test_a_range_made_unreadable_is_read_again_before_it_is_reported() -> None:
    digests = digests_with([5, 7, 9, 2])
    digests.forget(21, 22)
    assert digests.of(16, 23) is None
    assert digests.to_read() == (16, 23)
    digests.read(None, 16, 23)
    assert digests.to_read() is None
    assert [r.start for r in digests.reports(23, 0, 10)] == [0, 8]


@pytest.mark.rule("divergent-replicas-are-reported")
def test_the_digest_of_the_disk_counts_and_a_difference_is_returned() -> None:
    digests = digests_with([5, 7, 9, 2])
    known = digests.of(0, 12)
    assert known is not None
    assert digests.scrubbed(known) is None
    other = known._replace(value=7)
    assert digests.scrubbed(other) == known
    assert digests.of(0, 12) == other
    assert other in digests.reports(23, 0, 10)
    last = digests.of(16, 23)
    assert last is not None
    assert digests.scrubbed(last._replace(value=8)) == last
    assert digests.of(16, 23) == last._replace(value=8)


def test_the_digest_of_appended_batches_is_kept_whatever_the_disk_holds() -> None:
    digests = digests_with([5, 7, 9, 2])
    known, last = digests.of(0, 12), digests.of(16, 23)
    assert known is not None
    assert last is not None
    for value in (7, 7, 9):
        assert digests.scrubbed(known._replace(value=value)) == known
        assert digests.scrubbed(last._replace(value=value)) == last
    assert digests.appended_in(0, 12) == known
    digests.appended([batch_at(23, count=1)])
    grown = digests_with([5, 7, 9, 2])
    grown.appended([batch_at(23, count=1)])
    assert digests.appended_in(16, 24) == grown.of(16, 24) != digests.of(16, 24)
    digests.scrubbed(last._replace(value=9))  # and the range has grown
    assert digests.to_read() == (16, 24)
    digests.read(RangeDigest(16, 24, 3), 16, 24)
    assert digests.appended_in(16, 24) == grown.of(16, 24)
    assert digests.scrubbed(known) is None
    assert digests.of(0, 12) == known


def test_batches_read_from_the_disk_do_not_count_as_appended() -> None:
    digests = LogDigests(RANGE, 12)
    digests.appended([batch_at(12, count=2)])
    digests.read(RangeDigest(8, 12, 3), 8, 12)
    assert digests.of(8, 14) is not None
    assert digests.appended_in(8, 14) is None
    digests = digests_with([5, 7, 9, 2])
    digests.forget(21, 22)
    digests.read(RangeDigest(16, 23, 3), 16, 23)
    assert digests.appended_in(16, 23) is None


def test_a_partial_range_on_the_disk_does_not_replace_its_range() -> None:
    digests = digests_with([5, 7, 9, 2])
    known, part = digests.of(0, 12), digests_with([5]).of(0, 5)
    assert known is not None
    assert part is not None
    assert digests.scrubbed(part) is None
    assert digests.of(0, 12) == known
    assert known in digests.reports(23, 0, 10)
    digests.cut(5)
    assert digests.of(0, 5) is None
    assert digests.to_read() == (0, 5)
    digests.read(part, 0, 5)
    assert digests.of(0, 5) == part


def test_the_newest_ranges_are_read_again_after_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_digest, "MAX_READ_AGAIN", 3)
    digests = LogDigests(RANGE, 5 * RANGE + 3)
    read = []
    while (part := digests.to_read_again(0)) is not None:
        read.append(part)
        digests.read_again(part[0], RangeDigest(*part, 7))
    assert read == [(32, 40), (24, 32), (16, 24)]
    assert [r.start for r in digests.reports(5 * RANGE, 0, 10)] == [32, 24, 16]
    assert digests.has_reports(0)  # until the leader has them


def test_only_what_the_log_holds_is_read_again() -> None:
    digests = LogDigests(RANGE, 5 * RANGE)
    assert digests.to_read_again(4 * RANGE + 1) is None
    digests.cut(3 * RANGE + 2)
    digests.read_again(4 * RANGE, RangeDigest(4 * RANGE, 5 * RANGE, 7))  # it was read before
    assert digests.reports(5 * RANGE, 0, 10) == []
    assert digests.to_read_again(0) == (2 * RANGE, 3 * RANGE)
    digests.reset(4 * RANGE)
    assert digests.to_read_again(0) is None
    assert LogDigests(RANGE, RANGE - 1).to_read_again(0) is None


def test_without_ranges_there_are_no_digests() -> None:
    digests = digests_with([5, 7, 9, 2], range_offsets=0)
    assert not digests.is_on
    assert not digests.has_reports(0)
    assert digests.reports(23, 0, 10) == []


@pytest.mark.parametrize("position", range(3))
def test_one_differing_batch_is_the_first_difference(position: int) -> None:
    own = [BatchSummary.of(b.header) for b in batches_after(0, [2, 3, 4], 1, 1)]
    other = list(own)
    other[position] = own[position]._replace(crc32c=9)
    assert first_difference(own, other) == own[position].base_offset
    assert first_difference(own, own[:position]) == own[position].base_offset
    assert first_difference(own, own) == -1
    assert all(one.base_offset < two.base_offset for one, two in pairwise(own))


def test_a_range_that_an_unreadable_batch_reaches_into_is_not_compared() -> None:
    sums = RangeSums(4, 0, is_covered=True)
    unreadable = new_damaged_batch(
        b"", first_offset=2, next_offset=6, leader_epoch=1, append_time_ms=1
    )
    sound = [batch_at(0), batch_at(1), *(batch_at(n) for n in range(6, 13))]
    headers = [batch.header for batch in (*sound[:2], unreadable, *sound[2:])]
    assert [(one.start, one.damaged) for one in sums.add(headers)] == [
        (0, True),
        (4, True),
        (8, False),
    ]
