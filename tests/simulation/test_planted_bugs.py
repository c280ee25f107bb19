"""The simulator finds bugs: each of these rules is broken on purpose.

The violation that a run then shows has a fitting name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from simulation.faults import HOUR_MS, TO_1970_MS, TO_2099_MS, Fault
from simulation.loop import SimLoop
from simulation.scenario import EXCEPTION, run_seed
from simulation.stored_plans import stored_plans
from tidelog.batch import stamp
from tidelog.client import Consumer
from tidelog.model import Batch, Record
from tidelog_broker.clock_check import AppendClock, ClockCheck, LatestClock
from tidelog_broker.core.partition import high_watermark as hw
from tidelog_broker.core.partition import isr
from tidelog_broker.core.partition.exchange import FetchAnswer
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.log import reopening
from tidelog_broker.log.log import Log
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_controller.core import reconcile
from tidelog_controller.policies import leader_election, recovery
from tidelog_controller.policies.electability import ElectionRules
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member

MAX_SEEDS = 40

LOST = {
    "committed_without_member",
    "history: lost write",
    "history: unseen",
    "leader_cut_its_log",
    "leader_lacks_committed",
    "logs_differ_below_high_watermark",
    "member_cut_committed",
}


def first_violation(seeds: Sequence[int] = range(1, MAX_SEEDS + 1)) -> str | None:
    """Returns the name of the first invariant that these seeds violate."""
    names = (run_seed(seed).violation for seed in seeds)
    return next((name for name in names if name not in (None, EXCEPTION)), None)


def recover_without_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    next_state = leader_election.next_state

    def hasty(state: Any, live: Any, epoch: int, rules: ElectionRules, **options: Any) -> Any:
        return next_state(state, live, epoch, rules._replace(recovery="balanced"), **options)

    monkeypatch.setattr(reconcile, "next_state", hasty)
    monkeypatch.setattr(
        reconcile,
        "needs_descriptions",
        lambda state, live, rules, consent: recovery.needs_descriptions(
            state, live, rules._replace(recovery="balanced"), consent
        ),
    )


@pytest.mark.timeout(300)
def test_a_replica_that_keeps_another_committed_batch_is_found_by_its_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each replica stamps its own time; all else is equal, and every checksum is right."""
    append = Log.append

    def append_with_own_time(self: Log, batches: Sequence[Batch]) -> None:
        own = [
            stamp(
                batch,
                base_offset=batch.header.base_offset,
                leader_epoch=batch.header.leader_epoch,
                append_time_ms=cast(SimLoop, asyncio.get_running_loop()).wall_ms(),
            )
            for batch in batches
        ]
        append(self, own)

    monkeypatch.setattr(Log, "append", append_with_own_time)
    assert first_violation() == "divergence_reported"


@pytest.mark.timeout(300)
def test_a_follower_that_truncates_to_its_high_watermark_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = Partition.take

    def truncating_take(
        self: Partition, state: LeaderAndIsr, revision: int, *, broker_epoch: int, now_ms: int
    ) -> bool:
        epoch = self.leader_epoch
        news = take(self, state, revision, broker_epoch=broker_epoch, now_ms=now_ms)
        if news and self.leading is None and self.leader_epoch != epoch:
            self.log.truncate_to(self.high_watermark)
        return news

    monkeypatch.setattr(Partition, "take", truncating_take)
    assert first_violation() in LOST


@pytest.mark.timeout(300)
def test_a_joiner_that_lacks_committed_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr, "may_join", lambda progress, **_: progress.log_end_offset >= 0)
    assert first_violation() == "joined_without_committed"


@pytest.mark.timeout(300)
def test_a_removal_that_counts_before_the_store_has_taken_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        isr,
        "maximal",
        lambda state, proposed: state.isr_ids if proposed is None else proposed.isr_ids,
    )
    assert first_violation() in LOST


@pytest.mark.timeout(300)
def test_a_high_watermark_that_does_not_wait_for_every_member_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advanced = hw.advanced

    def by_majority(
        high_watermark: int,
        end_offsets: Mapping[int, int],
        *,
        maximal_isr: Sequence[int],
        **rest: Any,
    ) -> int:
        ends = sorted((end_offsets.get(b, -1) for b in maximal_isr), reverse=True)
        members = [b for b in maximal_isr if end_offsets.get(b, -1) >= ends[len(ends) // 2]]
        return advanced(high_watermark, end_offsets, maximal_isr=members, **rest)

    monkeypatch.setattr(hw, "advanced", by_majority)
    assert first_violation() == "committed_without_member"


@pytest.mark.timeout(300)
def test_an_answer_before_the_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = Purgatory.committed
    monkeypatch.setattr(
        Purgatory, "committed", lambda self, partition, _: committed(self, partition, 0)
    )
    assert first_violation() == "acknowledged_before_commit"


@pytest.mark.timeout(300)
def test_a_reader_that_is_given_what_is_not_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read_all(
        self: Partition, fetch_offset: int, _: int, max_bytes: int, **__: bool
    ) -> FetchAnswer:
        self.require_leading()
        end = self.log.log_end_offset
        batches = self.log.read(fetch_offset, max_bytes=max_bytes, up_to=end)
        return FetchAnswer(
            self.high_watermark, self.log.log_start_offset, self.leader_epoch, batches
        )

    monkeypatch.setattr(Partition, "read_for_consumer", read_all)
    assert first_violation() in {"read_before_commit", "history: inconsistent offsets"}


@pytest.mark.timeout(300)
def test_a_leader_elected_without_a_look_at_what_it_lost_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    next_state = leader_election.next_state

    def careless(state: LeaderAndIsr, live: Any, *rest: Any, **options: Any) -> Any:
        whole = {broker_id: broker._replace(whole_since=0) for broker_id, broker in live.items()}
        return next_state(state, whole, *rest, **options)

    monkeypatch.setattr(reconcile, "next_state", careless)
    plan = [
        Fault(10_000, "reboot", ("broker-1",), 500),
        *(Fault(10_100, "crash_broker", (f"broker-{n}",), 9_000) for n in (2, 3)),
    ]
    assert {run_seed(seed, plan).violation for seed in (1, 2)} == {"elected_not_whole"}


@pytest.mark.timeout(300)
def test_a_recovery_that_waits_for_no_consent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    recover_without_consent(monkeypatch)
    plan = [Fault(10_000, "reboot_all", (), 500)]
    violations = {run_seed(seed, plan).violation for seed in (1, 2)}
    assert violations == {"recovered_without_consent"}


@pytest.mark.timeout(300)
def test_an_eligible_set_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with_isr = LeaderAndIsr.with_isr

    def forgetful(self: LeaderAndIsr, members: Sequence[Member]) -> LeaderAndIsr:
        return replace(with_isr(self, members), eligible=())

    monkeypatch.setattr(LeaderAndIsr, "with_isr", forgetful)
    assert first_violation() == "eligible_set"


@pytest.mark.timeout(300)
def test_an_fsync_that_is_trusted_after_one_that_failed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reopening, "rewrite_segments", lambda *_: None)
    plan = [Fault(8_000, "failed_fsync", ("broker-1", 1, "segments"), 12_000)]
    violations = {run_seed(seed, plan).violation for seed in range(1, 4)}
    assert violations == {"synced_not_on_disk"}


def clock_jumps(jump_ms: int) -> list[Fault]:
    """Returns jumps of one machine's clock after another."""
    return [
        Fault(8_000 + 12_000 * number, "clock_jump", (f"broker-{number + 1}", jump_ms), 10_000)
        for number in range(3)
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("jump_ms", [HOUR_MS, TO_2099_MS])
def test_retention_by_a_clock_that_jumped_ahead_is_found(
    monkeypatch: pytest.MonkeyPatch, jump_ms: int
) -> None:
    monkeypatch.setattr(ClockCheck, "check", lambda *_: True)
    monkeypatch.setattr(ClockCheck, "retention_ms", lambda _, wall_ms, __: wall_ms)
    assert run_seed(1, clock_jumps(jump_ms)).violation == "deleted_within_retention"


@pytest.mark.timeout(300)
def test_appends_that_are_dated_by_a_clock_that_jumped_back_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for clock in (AppendClock, LatestClock):
        monkeypatch.setattr(clock, "wall_ms", lambda self: self._clock.wall_ms())
    assert run_seed(1, clock_jumps(TO_1970_MS)).violation == "deleted_within_retention"


@pytest.mark.timeout(300)
def test_a_store_older_than_what_a_controller_has_reported_is_found_to_be_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MeasuredStore, "observe_revision", lambda *_: None)
    [plan] = [plan for plan in stored_plans() if plan.name == "backup-of-store-after-command"]
    assert plan.seed is not None
    found = run_seed(plan.seed, plan.faults)
    assert found.violation == "state_never_written"


@pytest.mark.timeout(300)
def test_a_consumer_that_passes_over_a_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = Consumer.poll

    async def careless(self: Consumer, timeout_ms: int) -> list[Record]:
        records = await poll(self, timeout_ms)
        return [record for record in records if record.offset % 20 != 19]

    monkeypatch.setattr(Consumer, "poll", careless)
    assert first_violation() == "passed_over_without_fence"


def test_a_handler_that_raises_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller would see an ordinary failed call."""

    def broken(*_: object) -> None:
        raise TypeError("not what it takes")

    monkeypatch.setattr(Partition, "append", broken)
    found = run_seed(1)
    assert (found.violation, "not what it takes" in found.message) == (EXCEPTION, True)
