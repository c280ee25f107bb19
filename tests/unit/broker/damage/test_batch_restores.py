"""A leader copies batches that it cannot read from in-sync followers, and its readers wait for
that.
"""

from __future__ import annotations

import pytest

from tidelog.errors import RecordsDamagedError
from tidelog.model import NO_EPOCH, NO_OFFSET, Batch
from tidelog.rpc.message_bounds import Rejected, bounded_deserializer, parsed
from tidelog.state_changes.event import Kind
from tidelog_broker.core.fetch_messages import DivergedRange, ReplicaFetchRequest, ReportedDigest
from tidelog_broker.core.partition.range_digest import BatchSummary, RangeDigest
from tidelog_broker.damage import batch_restores
from tidelog_broker.damage.batch_restores import BatchRestores
from tidelog_broker.edge.replica_codec import request_from_wire, request_to_wire
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.damaged_batches import OffsetRange
from unit.broker.broker_parts import (
    DATA,
    KEY,
    Replicas,
    append,
    at_work,
    fetch_by,
    in_place,
    until_idle,
)
from unit.broker.cold_disk import Threads
from unit.broker.fake_log import state
from unit.broker.log.builders import FakeClock

METHOD = "/tidelog.v1.ReplicaService/ReplicaFetch"
FOUND = OffsetRange(1, 2)
WANTED = [DivergedRange(KEY, 1, 2, wants_contents=True)]
LED = state(replicas=(1, 2, 3), isr=(1, 2, 3), min_isr=1)


class Leader:
    """Broker 1 leads three batches, of which its disk has damaged the second."""

    def __init__(self) -> None:
        self.replicas = Replicas()
        self.replicas.logs.damaged_batches.prepare()
        replicas = self.replicas
        self.clock = FakeClock()
        self.restores = BatchRestores(
            replicas.logs,
            replicas.manager,
            self.clock,
            ColdReads(replicas.disk, in_place),
            in_place,
        )
        self.agreed = 3

    async def start(self, size: int = 100) -> Leader:
        self.partition = await self.replicas.lead(new_state=LED)
        append(self.partition, *[bytes(size)] * 3)
        self.sound = self.log_batches()
        for follower in (2, 3):
            fetch_by(self.partition, follower)
        self.seal()
        return self

    def log_batches(self) -> list[Batch]:
        return list(self.partition.log.read(0, max_bytes=1 << 30, up_to=3))

    def seal(self) -> None:
        log = self.replicas.logs.log_of(KEY)
        assert log is not None
        (segment,) = (p for p in self.replicas.memory.names if p.suffix == ".log")
        data = self.replicas.memory.names[segment].data
        data[len(data) // 2] ^= 1
        evidence = self.replicas.logs.damaged_batches.evidence_of(self.partition.name, KEY)
        check = log.begin_quarantine(segment, evidence, copies=False)
        assert check is not None
        check.run()
        log.finish_quarantine(check)

    def ranges_to_request(self, follower: int = 2) -> list[DivergedRange]:
        self.sleep(batch_restores.PAUSE_MS)
        return list(self.restores.ranges_to_request(follower, lambda _: self.agreed))

    def sleep(self, ms: int) -> None:
        self.clock.now_ms += ms

    async def sends(self, *batches: Batch, follower: int = 2, is_running: bool = False) -> bool:
        summaries = [BatchSummary.of(self.sound[1].header)]
        report = ReportedDigest(KEY, RangeDigest(1, 2, 0), summaries, contents=batches)
        if is_running:
            is_answer = self.restores.received(follower, report)
            await until_idle()
            return is_answer
        return await self._received(follower, report)

    async def _received(self, follower: int, report: ReportedDigest) -> bool:
        async with at_work(self.restores.run()):
            is_answer = self.restores.received(follower, report)
            await until_idle()
        return is_answer

    async def sends_over_the_wire(self, follower: int = 2) -> bool:
        sound = self.sound[1]
        report = ReportedDigest(
            KEY, RangeDigest(1, 2, 0), [BatchSummary.of(sound.header)], contents=[sound]
        )
        wire = await request_to_wire(ReplicaFetchRequest(2, 1, 1, 0, 0, 0, [], digests=[report]))
        received = bounded_deserializer(METHOD, wire.FromString, wire.DESCRIPTOR)(
            wire.SerializeToString()
        )
        request = await parsed(METHOD, received)
        assert not isinstance(request, Rejected), request
        (came,) = (await request_from_wire(request)).digests
        return await self._received(follower, came)

    def reads(self) -> bool:
        """Whether a consumer gets the batch."""
        try:
            answer = self.partition.read_for_consumer(1, NO_EPOCH, 1 << 20)
        except RecordsDamagedError:
            return False
        return list(answer.batches) == self.sound[1:]

    def waits(self) -> bool:
        return self.restores.may_be_restored(self.partition, FOUND)


@pytest.fixture
async def leads() -> Leader:
    return await Leader().start()


@pytest.mark.rule("damage-costs-only-its-batch")
async def test_the_leader_requests_an_unreadable_batch_from_an_in_sync_follower(
    leads: Leader,
) -> None:
    assert not leads.reads()
    assert leads.ranges_to_request() == WANTED
    assert await leads.sends(leads.sound[1])
    assert leads.reads()
    assert leads.log_batches() == leads.sound
    assert leads.replicas.logs.damaged_batches.of(KEY) == []
    assert leads.partition.leading is not None
    assert leads.ranges_to_request() == []


@pytest.mark.parametrize("size", [300_000, 1 << 20, (16 << 20) - 1_000])
async def test_a_batch_of_any_size_that_a_topic_allows_is_restored(size: int) -> None:
    leads = await Leader().start(size)
    assert leads.ranges_to_request() == WANTED
    assert await leads.sends_over_the_wire()
    assert leads.log_batches() == leads.sound


@pytest.mark.rule("disk-reads-off-event-loop")
async def test_a_thread_syncs_the_restored_batch(leads: Leader) -> None:
    threads = Threads()
    replicas = leads.replicas
    reads = ColdReads(replicas.disk, threads)
    leads.restores = BatchRestores(replicas.logs, replicas.manager, leads.clock, reads, threads)
    assert leads.ranges_to_request() == WANTED
    replicas.memory.fail_sync = True  # until a thread runs
    async with at_work(leads.restores.run()):
        await leads.sends(leads.sound[1], is_running=True)
        assert replicas.logs.damaged_batches.of(KEY) == [FOUND]
        replicas.memory.fail_sync = False
        await threads.end()
    assert leads.reads()
    assert replicas.logs.damaged_batches.of(KEY) == []
    assert replicas.failures == []


async def test_the_number_of_batches_that_wait_to_be_restored_is_bounded(
    leads: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_restores, "MAX_RECEIVED", 0)
    assert leads.ranges_to_request() == WANTED
    assert await leads.sends(leads.sound[1])
    assert not leads.reads()
    leads.sleep(batch_restores.RETRY_MS)
    assert leads.ranges_to_request() == WANTED


async def test_a_restore_is_reported_and_the_evidence_is_of_repaired_damage(leads: Leader) -> None:
    leads.ranges_to_request()
    await leads.sends(leads.sound[1])
    (event,) = leads.replicas.events(Kind.REPLICA_REPAIRED)
    assert (event.details["first_offset"], event.details["other_broker"]) == (1, 2)
    leads.replicas.logs.damaged_batches.sweep()
    (file,) = leads.replicas.memory.list_names(DATA / "evidence")
    assert file.endswith(".repaired")


async def test_a_follower_out_of_sync_or_not_known_to_agree_is_not_asked(leads: Leader) -> None:
    leads.partition.take(
        state(replicas=(1, 2, 3), isr=(1, 2), min_isr=1), 11, broker_epoch=101, now_ms=1
    )
    assert leads.ranges_to_request(3) == []
    leads.agreed = 1
    assert leads.ranges_to_request(2) == []


async def test_unrequested_or_late_batches_are_not_taken(leads: Leader) -> None:
    assert await leads.sends(leads.sound[1])
    assert not leads.reads()
    leads.ranges_to_request()
    leads.partition.stop_leading()
    await leads.sends(leads.sound[1])
    assert leads.replicas.logs.damaged_batches.of(KEY) == [FOUND]


async def test_readers_wait_for_batches_that_any_follower_may_have(leads: Leader) -> None:
    assert leads.waits()
    assert leads.ranges_to_request() == WANTED
    assert leads.ranges_to_request(3) == WANTED
    await leads.sends()
    assert leads.waits()
    await leads.sends(follower=3)
    assert not leads.waits()


async def test_readers_stop_waiting_for_a_follower_that_sends_nothing(leads: Leader) -> None:
    leads.ranges_to_request()
    await leads.sends()
    leads.ranges_to_request(3)
    leads.sleep(batch_restores.WAIT_MS - 1)
    assert leads.waits()
    leads.sleep(1)
    assert not leads.waits()


async def test_readers_do_not_wait_forever_for_a_follower_that_cannot_be_asked(
    leads: Leader,
) -> None:
    assert leads.waits()
    leads.sleep(batch_restores.WAIT_MS)
    assert not leads.waits()


async def test_a_session_without_the_partition_leaves_the_request_to_the_other(
    leads: Leader,
) -> None:
    leads.sleep(batch_restores.PAUSE_MS)
    assert list(leads.restores.ranges_to_request(2, lambda _: NO_OFFSET)) == []
    assert list(leads.restores.ranges_to_request(2, lambda _: leads.agreed)) == WANTED


async def test_readers_of_the_only_copy_do_not_wait(leads: Leader) -> None:
    alone = state(replicas=(1,), isr=(1,), min_isr=1)
    leads.partition.take(alone, 11, broker_epoch=101, now_ms=1)
    assert not leads.waits()


async def test_a_follower_that_lacks_the_batch_too_is_asked_again_rarely(leads: Leader) -> None:
    assert leads.ranges_to_request() == WANTED
    assert leads.ranges_to_request() == []
    leads.sleep(batch_restores.RETRY_MS)
    assert leads.ranges_to_request() == WANTED
    await leads.sends()
    leads.sleep(batch_restores.RETRY_MS)
    assert leads.ranges_to_request() == []
    leads.sleep(batch_restores.SLOW_RETRY_MS)
    assert leads.ranges_to_request() == WANTED
    await leads.sends(leads.sound[1])
    assert leads.reads()


async def test_a_follower_that_was_out_of_the_isr_as_it_answered_is_asked_again(
    leads: Leader,
) -> None:
    assert leads.ranges_to_request() == WANTED
    without = state(replicas=(1, 2, 3), isr=(1, 3), min_isr=1)
    leads.partition.take(without, 11, broker_epoch=101, now_ms=1)
    await leads.sends(leads.sound[1])
    assert not leads.reads()
    leads.partition.take(LED, 12, broker_epoch=101, now_ms=1)
    leads.sleep(batch_restores.RETRY_MS)
    assert leads.ranges_to_request() == WANTED


async def test_a_different_batch_is_not_taken_and_counts_as_missing(leads: Leader) -> None:
    leads.ranges_to_request()
    await leads.sends(leads.sound[2])
    assert not leads.reads()
    leads.ranges_to_request(3)
    await leads.sends(follower=3)
    assert not leads.waits()


async def test_a_batch_copied_as_unreadable_is_requested_once_a_reader_needs_it(
    leads: Leader,
) -> None:
    leads.replicas.logs.damaged_batches.cut(KEY, 0)  # not caused by damage of this disk
    assert leads.ranges_to_request() == []
    assert leads.waits()
    assert leads.ranges_to_request() == WANTED
    await leads.sends(leads.sound[1])
    assert leads.reads()
    assert leads.ranges_to_request() == []


async def test_the_number_of_batches_that_readers_request_is_bounded(leads: Leader) -> None:
    for offset in range(10, 10 + batch_restores.MAX_NOTED):
        assert leads.restores.may_be_restored(leads.partition, OffsetRange(offset, offset + 1))
    assert not leads.restores.may_be_restored(leads.partition, OffsetRange(1000, 1001))
