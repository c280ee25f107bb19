"""A leader compares the digests that followers report with its own, and reports differences."""

from __future__ import annotations

import asyncio
import json

import pytest

from tidelog.batch import new_damaged_batch
from tidelog.log_format import FRAME_HEADER_BYTES
from tidelog.model import NO_LEADER, NO_OFFSET, Batch
from tidelog.state_changes.event import Kind
from tidelog_broker.core.fetch_messages import DivergedRange, ReportedDigest
from tidelog_broker.core.partition.range_digest import (
    BatchSummary,
    RangeDigest,
    batch_digest,
)
from tidelog_broker.damage.batch_restores import BatchRestores
from tidelog_broker.damage.digest_check import DigestCheck
from tidelog_broker.damage.divergences import SWEEP_INTERVAL_S, Divergences
from tidelog_broker.log.log import Log
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.damaged_batches import EVIDENCE_RETENTION_MS
from tidelog_broker.storage.replica_digests import MAX_REQUESTERS, ReplicaDigests
from unit.broker.broker_parts import (
    DATA,
    KEY,
    Replicas,
    at_work,
    in_place,
    stages,
    until_idle,
)
from unit.broker.fake_log import state
from unit.broker.log.builders import batch_at, batches_from

FOLLOWER = 2
RANGE = 4_096
# Within a frame.
RECORD_COUNT_AT = 37


def digest_of(batches: list[Batch]) -> RangeDigest:
    headers = [batch.header for batch in batches]
    value = sum(map(batch_digest, headers)) % (1 << 64)
    return RangeDigest(headers[0].base_offset, headers[-1].next_offset, value)


def report_of(batches: list[Batch], *, listed: bool = False) -> ReportedDigest:
    if not listed:
        return ReportedDigest(KEY, digest_of(batches))
    summaries = [BatchSummary.of(batch.header) for batch in batches]
    return ReportedDigest(KEY, digest_of(batches), summaries, ["theirs.log"])


class Leader:
    """Broker 1 leads one partition with ten batches."""

    def __init__(self) -> None:
        self.replicas = Replicas()
        self.replicas.logs.damaged_batches.prepare()
        self.cold_reads = ColdReads(self.replicas.disk, in_place)
        self.digests = ReplicaDigests(
            self.replicas.disk, self.replicas.logs, self.cold_reads, in_place
        )
        self.divergences = self.new_divergences()
        self.check = self.new_check()
        self.held = batches_from(0, 10)
        self.agreed = 10

    def new_check(self) -> DigestCheck:
        replicas = self.replicas
        self.restores = BatchRestores(
            replicas.logs, replicas.manager, replicas.clock, self.cold_reads, in_place
        )
        return DigestCheck(self.digests, self.divergences, replicas.manager, self.restores)

    def new_divergences(self) -> Divergences:
        replicas = self.replicas
        return Divergences(
            replicas.disk,
            DATA / "evidence",
            replicas.logs,
            replicas.manager,
            replicas.clock,
            in_place,
        )

    async def start(self) -> Leader:
        await self.replicas.take()
        self.log.append(self.held)
        return self

    @property
    def log(self) -> Log:
        log = self.replicas.logs.log_of(KEY)
        assert log is not None
        return log

    async def reported(self, *reports: ReportedDigest) -> list[DivergedRange]:
        """Take a report of the follower, and run everything that follows from it."""
        async with at_work(self.digests.run()), at_work(self.divergences.run()):
            asked = self.check.compare(FOLLOWER, reports, lambda _: self.agreed)
            await until_idle()
        return list(asked)

    def emitted(self) -> list[str]:
        return stages(self.replicas.events(Kind.REPLICA_DIVERGED))

    def files(self) -> list[str]:
        return [n.rsplit(".", 1)[1] for n in self.replicas.disk.list_names(DATA / "evidence")]


def others(position: int = 4) -> list[Batch]:
    """The leader's batches with one replaced, whose checksums are valid too."""
    batches = batches_from(0, 10)
    batches[position] = batch_at(position, records=b"another record")
    return batches


async def test_equal_digests_raise_no_divergence() -> None:
    leads = await Leader().start()
    assert await leads.reported(report_of(leads.held)) == []
    assert (leads.check.compared, leads.divergences.count) == (1, 0)
    assert leads.emitted() == []


@pytest.mark.rule("divergent-replicas-are-reported")
async def test_a_differing_batch_is_reported_and_located() -> None:
    leads = await Leader().start()
    asked = await leads.reported(report_of(others()))
    assert asked == [DivergedRange(KEY, 0, 10)]
    assert leads.emitted() == ["replica_diverged requested"]
    assert await leads.reported(report_of(others(), listed=True)) == []
    assert leads.emitted() == ["replica_diverged requested", "replica_diverged received"]
    (found,) = leads.divergences.of(KEY)
    assert (found.broker_id, found.first_offset, found.next_offset) == (FOLLOWER, 0, 10)
    assert (found.digest, found.other_digest) == (
        str(digest_of(leads.held)),
        str(digest_of(others())),
    )
    assert found.batch_offset == 4
    assert found.batch == str(BatchSummary.of(leads.held[4].header))
    assert found.other_batch == str(BatchSummary.of(others()[4].header))
    assert (found.segments, found.other_segments) == (
        ("00000000000000000000.log",),
        ("theirs.log",),
    )
    assert leads.files() == ["diverged"]
    content = leads.replicas.disk.read_file(DATA / found.evidence)
    assert json.loads(content.split(b"\n")[1])["divergence"]["batch_offset"] == 4


async def test_the_same_divergence_is_reported_once() -> None:
    leads = await Leader().start()
    await leads.reported(report_of(others()), report_of(others()))
    await leads.reported(report_of(others()))
    assert leads.emitted() == ["replica_diverged requested"]
    assert (leads.divergences.count, leads.divergences.found_total) == (1, 1)


async def test_a_divergence_outlives_a_restart_and_ends_when_both_replicas_agree_again() -> None:
    leads = await Leader().start()
    await leads.reported(report_of(others()))
    leads.divergences = leads.new_divergences()
    leads.divergences.load()
    assert leads.divergences.count == 1
    leads.check = leads.new_check()
    await leads.reported(report_of(leads.held))
    assert leads.divergences.count == 0
    assert leads.files() == ["resolved"]
    assert leads.emitted()[-1] == "replica_diverged completed"


async def test_evidence_that_the_disk_rejected_is_written_later() -> None:
    leads = await Leader().start()
    leads.replicas.memory.space = 0
    await leads.reported(report_of(others()))
    assert leads.files() == []
    leads.replicas.memory.space = None
    async with at_work(leads.divergences.run()):
        await asyncio.sleep(2 * SWEEP_INTERVAL_S)
    assert leads.files() == ["diverged"]


async def test_a_divergence_ends_when_its_range_is_cut_or_deleted() -> None:
    leads = await Leader().start()
    await leads.reported(report_of(others()))
    leads.log.truncate_to(3)
    leads.divergences.sweep()
    assert leads.divergences.count == 0


@pytest.mark.rule("divergent-replicas-are-reported")
async def test_ranges_that_the_logs_may_not_share_are_not_compared() -> None:
    leads = await Leader().start()
    for agreed in (NO_OFFSET, 9):
        leads.agreed = agreed
        assert await leads.reported(report_of(others())) == []
    assert leads.check.compared == 0


async def test_a_range_missing_in_memory_is_read_from_the_disk() -> None:
    leads = await Leader().start()
    leads.log.digest_ranges(RANGE)
    assert leads.log.digests.of(0, 10) is None
    await leads.reported(report_of(leads.held))
    assert (leads.check.compared, leads.divergences.count) == (1, 0)
    await leads.reported(report_of(others()))
    assert leads.divergences.count == 1


async def test_a_growing_range_is_compared_later() -> None:
    leads = await Leader().start()
    await leads.reported(report_of(leads.held[:7]))
    assert leads.check.compared == 0


async def test_a_cut_during_the_disk_read_cancels_the_comparison() -> None:
    leads = await Leader().start()
    leads.log.digest_ranges(RANGE)
    leads.check.compare(FOLLOWER, [report_of(others())], lambda _: 10)
    leads.log.truncate_to(5)
    async with at_work(leads.digests.run()):
        await until_idle()
    assert (leads.check.compared, leads.check.not_compared) == (0, 1)


async def test_a_range_with_unreadable_batches_counts_as_not_compared() -> None:
    leads = await Leader().start()
    leads.log.digest_ranges(RANGE)
    damaged = new_damaged_batch(
        b"?", first_offset=10, next_offset=12, leader_epoch=5, append_time_ms=1
    )
    leads.log.append([damaged])
    leads.agreed = 12
    leads.log.digest_ranges(RANGE)
    await leads.reported(report_of([*leads.held, damaged]))
    assert (leads.check.compared, leads.check.not_compared) == (0, 1)


async def test_a_wrong_record_count_on_the_disk_is_damage_and_no_divergence() -> None:
    """No checksum that is read with a header covers the record count, and no other batch follows
    the last batch of a segment.
    """
    leads = await Leader().start()
    leads.log.digest_ranges(RANGE)
    [data] = [f.data for p, f in leads.replicas.memory.names.items() if p.suffix == ".log"]
    data[-len(leads.held[-1].records) - FRAME_HEADER_BYTES + RECORD_COUNT_AT + 3] ^= 2
    await leads.reported(report_of(leads.held))
    assert (leads.check.compared, leads.check.not_compared) == (0, 1)
    assert leads.divergences.count == 0


async def test_a_waiting_range_is_compared_once_for_each_follower() -> None:
    leads = await Leader().start()
    leads.log.digest_ranges(RANGE)
    for _ in range(1_000):
        for follower in (FOLLOWER, FOLLOWER + 1):
            leads.check.compare(follower, [report_of(leads.held)], lambda _: 10)
    async with at_work(leads.digests.run()):
        await until_idle()
    assert (leads.check.compared, leads.check.not_compared) == (2, 0)


async def test_the_number_of_waiting_comparisons_is_bounded() -> None:
    leads = await Leader().start()
    leads.log.digest_ranges(RANGE)
    for follower in range(MAX_REQUESTERS + 10):
        leads.check.compare(follower, [report_of(leads.held)], lambda _: 10)
    assert leads.check.not_compared == 10
    async with at_work(leads.digests.run()):
        await until_idle()
    assert leads.check.compared == MAX_REQUESTERS


async def test_a_disk_that_holds_another_batch_than_was_appended_is_reported() -> None:
    leads = await Leader().start()
    leads.check.scrubbed(KEY, digest_of(leads.held))
    assert leads.divergences.count == 0
    leads.check.scrubbed(KEY, digest_of(others()))
    (found,) = leads.divergences.of(KEY)
    assert found.broker_id == leads.replicas.manager.broker_id


async def test_a_divergence_of_a_previous_leader_ends_and_is_found_by_the_next() -> None:
    leads = await Leader().start()
    await leads.reported(report_of(others()))
    leads.divergences.sweep()
    assert leads.divergences.count == 1
    await leads.replicas.take(state(leader=NO_LEADER, epoch=6), revision=11)
    leads.divergences.sweep()
    assert leads.divergences.count == 1  # no broker compares
    leads.divergences = leads.new_divergences()
    leads.divergences.load()
    await leads.replicas.take(state(leader=2, epoch=7), revision=12)
    async with at_work(leads.divergences.run()):
        await asyncio.sleep(2 * SWEEP_INTERVAL_S)
    assert (leads.divergences.count, leads.files()) == (0, ["resolved"])
    ended = leads.replicas.events(Kind.REPLICA_DIVERGED)[-1]
    assert ended.details["end"] == "another broker leads, and compares from now on"
    await leads.replicas.take(state(epoch=8), revision=13)
    leads.check = leads.new_check()
    await leads.reported(report_of(others()))
    assert leads.divergences.count == 1


async def test_a_divergence_of_the_own_disk_stays_until_the_disk_agrees_again() -> None:
    leads = await Leader().start()
    for _ in range(3):
        leads.check.scrubbed(KEY, digest_of(others()))
    (found,) = leads.divergences.of(KEY)
    assert found.digest == str(digest_of(leads.held))
    assert found.other_digest == str(digest_of(others()))
    leads.check.scrubbed(KEY, digest_of(leads.held))
    assert leads.divergences.count == 0
    assert leads.emitted()[-1] == "replica_diverged completed"


async def test_after_a_restart_an_own_divergence_stays_until_the_disk_agrees_again() -> None:
    leads = await Leader().start()
    leads.check.scrubbed(KEY, digest_of(others()))
    leads.log.digest_ranges(RANGE)
    wrong = digest_of(others())
    leads.log.digests.read(wrong, 0, 10)  # from the disk
    for position in (4, 4, 5):
        leads.check.scrubbed(KEY, digest_of(others(position)))
        (found,) = leads.divergences.of(KEY)
        assert found.digest == str(digest_of(leads.held))
    leads.check.scrubbed(KEY, digest_of(leads.held))
    assert leads.divergences.count == 0


async def test_an_own_divergence_ends_when_the_replica_is_moved_out_and_copied_again() -> None:
    """This is the next step that `tidelog explain` prints."""
    leads = await Leader().start()
    leads.check.scrubbed(KEY, digest_of(others()))
    async with at_work(leads.divergences.run()):
        await until_idle()
    leads.divergences = leads.new_divergences()
    leads.divergences.load()
    leads.check = leads.new_check()
    leads.log.reset_to(0)
    copied = others(7)  # as its leader has them
    leads.log.append(copied)
    leads.divergences.sweep()
    assert leads.divergences.count == 1
    leads.check.scrubbed(KEY, digest_of(copied))
    assert leads.divergences.count == 0


async def test_evidence_is_kept_for_its_retention_after_its_resolution() -> None:
    leads = await Leader().start()
    await leads.reported(report_of(others()))
    await asyncio.sleep(EVIDENCE_RETENTION_MS / 1000 + 1)
    await leads.reported(report_of(leads.held))
    assert leads.files() == ["resolved"]
    await asyncio.sleep(EVIDENCE_RETENTION_MS / 1000 + 1)
    await leads.reported(report_of(others()))
    assert leads.files() == ["diverged"]


async def test_without_digests_no_comparison_is_made() -> None:
    leads = await Leader().start()
    leads.log.digest_ranges(0)
    assert await leads.reported(report_of(others())) == []
    assert leads.divergences.count == 0
