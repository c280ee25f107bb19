"""A follower reports the digests of its committed ranges, and batches that its leader requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tidelog.batch import new_damaged_batch
from tidelog_broker.core.fetch_messages import DivergedRange
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.range_digest import (
    BatchSummary,
    LogDigests,
)
from tidelog_broker.replication.digest_reports import DigestReports
from unit.broker.broker_parts import (
    KEY,
    KeptDigests,
    at_work,
    until_idle,
)
from unit.broker.damage.test_digest_check import RANGE, Leader, digest_of, report_of
from unit.broker.log.builders import batch_at, batches_from


@pytest.fixture
async def follows() -> Leader:
    """Use the leader's log as that of a follower."""
    leads = await Leader().start()
    partition = leads.replicas.manager.find(KEY)
    assert partition is not None
    partition.high_watermark = 10
    return leads


async def test_a_follower_reports_committed_ranges_until_they_are_answered(follows: Leader) -> None:
    partition = follows.replicas.manager.find(KEY)
    assert partition is not None
    digests = KeptDigests()
    digests.kept[KEY] = follows.log.digests
    reports = DigestReports(digests)
    assert reports.next(0.0) == ()
    reports.note(partition)
    assert list(reports.next(1.0)) == [report_of(follows.held)]
    assert list(reports.next(1.1)) == []  # it is too soon
    assert list(reports.next(2.0)) == [report_of(follows.held)]
    reports.answered((), lambda _: True)
    assert list(reports.next(3.0)) == []
    partition.high_watermark = 9
    follows.log.append([batch_at(10)])
    reports.note(partition)
    assert list(reports.next(4.0)) == []
    partition.high_watermark = 11
    assert len(reports.next(5.0)) == 1


async def test_a_new_leader_gets_the_reports_sent_to_the_previous_one(follows: Leader) -> None:
    partition = follows.replicas.manager.find(KEY)
    assert partition is not None
    digests = KeptDigests()
    digests.kept[KEY] = LogDigests(4, 0)
    digests.kept[KEY].appended(follows.held)
    previous, reports = DigestReports(digests), DigestReports(digests)
    previous.note(partition)
    sent = previous.next(1.0)
    previous.answered((), lambda _: True)
    assert [report.digest.start for report in sent] == [0, 4, 8]
    assert list(previous.next(2.0)) == []
    previous.forget(KEY)
    reports.follow(partition)
    reports.answered((), lambda _: False)
    assert list(reports.next(3.0)) == []  # it does not compare yet
    reports.answered((), lambda _: True)
    assert sorted(reports.next(4.0)) == sorted(sent)
    reports.answered((), lambda _: False)  # it has not compared anything
    assert sorted(reports.next(5.0)) == sorted(sent)
    previous.answered((), lambda _: True)  # late
    reports.answered((), lambda _: True)
    assert list(reports.next(6.0)) == []


async def test_a_follower_lists_the_batches_that_its_leader_requests(follows: Leader) -> None:
    digests = follows.digests
    reports = DigestReports(digests)
    async with at_work(digests.run()):
        reports.answered([DivergedRange(KEY, 0, 10)], lambda _: True)
        await until_idle()
    (listed,) = reports.next(1.0)
    assert listed.digest == digest_of(follows.held)
    assert listed.batches == [BatchSummary.of(batch.header) for batch in follows.held]
    assert listed.segments == ["00000000000000000000.log"]
    assert list(reports.next(2.0)) == []


async def test_a_follower_sends_the_batches_that_its_leader_cannot_read(follows: Leader) -> None:
    ranges_to_request = [DivergedRange(KEY, start, 10, wants_contents=True) for start in (4, 5)]
    reports = DigestReports(follows.digests)
    async with at_work(follows.digests.run()):
        reports.answered(ranges_to_request, lambda _: True)
        await until_idle()
    (listed,) = reports.next(1.0)
    assert listed.contents == follows.held[4:]
    assert listed.digest == digest_of(follows.held[4:])
    assert list(reports.next(2.0)) == []  # one at a time


async def test_a_follower_that_cannot_read_the_batches_either_reports_it(follows: Leader) -> None:
    unreadable = new_damaged_batch(
        b"", first_offset=10, next_offset=12, leader_epoch=5, append_time_ms=1
    )
    follows.log.append([unreadable])
    reports = DigestReports(follows.digests)
    async with at_work(follows.digests.run()):
        reports.answered([DivergedRange(KEY, 10, 12, wants_contents=True)], lambda _: True)
        await until_idle()
    (listed,) = reports.next(1.0)
    assert (listed.digest[:2], listed.contents) == ((10, 12), ())
    assert listed.batches == [BatchSummary.of(unreadable.header)]


async def test_a_follower_reads_a_range_missing_in_memory_and_then_reports_it(
    follows: Leader,
) -> None:
    partition = follows.replicas.manager.find(KEY)
    assert partition is not None
    follows.log.digest_ranges(RANGE)
    reports = DigestReports(follows.digests)
    reports.note(partition)
    async with at_work(follows.digests.run()):
        assert list(reports.next(1.0)) == []
        await until_idle()
    assert list(reports.next(2.0)) == [report_of(follows.held)]


async def test_after_a_start_a_follower_reads_and_reports_its_newest_ranges(
    follows: Leader,
) -> None:
    """One for each report, the newest first: the disk may have changed meanwhile."""
    partition = follows.replicas.manager.find(KEY)
    assert partition is not None
    follows.log.digest_ranges(4)
    reports = DigestReports(follows.digests)
    reports.note(partition)
    sent = []
    async with at_work(follows.digests.run()):
        for at_s in range(1, 9):
            sent.append([report.digest[:2] for report in reports.next(float(at_s))])
            reports.answered((), lambda _: True)
            await until_idle()
    assert sent == [[], [(4, 8), (8, 10)], [(0, 4)], [], [], [], [], []]


async def test_partitions_read_their_ranges_in_turn(follows: Leader) -> None:
    partition = follows.replicas.manager.find(KEY)
    assert partition is not None
    other = KEY._replace(partition=KEY.partition + 1)
    beside = SimpleNamespace(key=other, high_watermark=40, log=partition.log)
    digests = KeptDigests()
    digests.kept = {key: LogDigests(4, 40) for key in (KEY, other)}
    reports = DigestReports(digests)
    reports.note(partition)
    reports.note(cast("Partition", beside))
    for at_s in range(4):
        reports.next(float(at_s))
    assert digests.read_again_of == [KEY, other, KEY, other]


def test_the_oldest_of_many_ranges_are_left_to_the_scrub() -> None:
    digests = LogDigests(1, 0)
    digests.appended(batches_from(0, 400))
    assert len(digests.reports(400, 0, 1000)) <= 257
