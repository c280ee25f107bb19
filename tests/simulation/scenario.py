"""Runs one seed: world, workload, faults, invariants, healing and final checks."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from simulation.controller_watch import ControllerWatch
from simulation.coverage import Coverage
from simulation.disk_watch import DiskWatch
from simulation.fault_effects import struck
from simulation.faults import LAST_END_MS, Fault
from simulation.final_checks import (
    note_digests,
    read_replicas,
    require_clean_history,
    require_clean_lives,
    require_equal_replicas,
    require_named_known,
)
from simulation.history import Recorder
from simulation.injector import FaultInjector
from simulation.invariants import Invariants
from simulation.lag_watch import LagWatch
from simulation.last_move import require_moved_off_the_dead
from simulation.liveness import require_healed, require_retention, require_writable
from simulation.observation import patched
from simulation.plans import draw_one_more, draw_plan
from simulation.readers import require_read
from simulation.recovery_operator import Operator
from simulation.throttle_rules import watching_throttle
from simulation.topic_plans import TOPICS, draw_topics
from simulation.unreadable import Unreadable
from simulation.violation import Violation
from simulation.workload import Workload, drain
from simulation.world import Settings, World
from tidelog.model import NO_EPOCH, Acks, TopicPartition
from tidelog_broker import clock_check
from tidelog_broker.core.partition import producer_state

# A seed lasts at least this long before it heals: a little longer than its faults.
MIN_WORK_MS = LAST_END_MS + 2_000
MIN_ACKNOWLEDGED = 500
# How much longer the workload runs, at most, if faults have let too few records through.
MORE_WORK_S = 30
DRAIN_S = 20.0
# More than the DELIVERY_TIMEOUT_MS of the workload's producers.
LONGEST_DELIVERY_MS = 25_000
# A drawn plan continues until this many of its faults had an effect, with at most MAX_MORE_FAULTS
# more.
MIN_FAULTS = 5
MAX_MORE_FAULTS = 10
# How long what a broker knows of another's clock counts here: it has to end within a seed.
PEER_VALID_MS = 1_500
# The name of an exception that is no violation of an invariant.
EXCEPTION = "exception"


@dataclass(slots=True)
class Result:
    """The outcome of a seed.

    - `violation`: name of the invariant, EXCEPTION, or None
    - `trace`: the last lines after a failure, or all lines if they are kept
    - `faults`: how many of each kind had an effect
    """

    seed: int
    plan: list[Fault]
    violation: str | None = None
    message: str = ""
    trace: list[str] = field(default_factory=list)
    digest: str = ""
    virtual_ms: int = 0
    steps: int = 0
    cpu_seconds: float = 0.0
    acknowledged: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    rules: Mapping[str, int] = field(default_factory=dict)


def run_seed(
    seed: int,
    plan: Sequence[Fault] | None = None,
    *,
    settings: Settings | None = None,
    keep_trace: bool = False,
) -> Result:
    """Runs a seed, without a plan with the one that it draws.

    Leaves about 10 MB to the garbage collector, which does not run meanwhile.
    """
    settings = settings or Settings(keep_trace=keep_trace)
    faults = draw_plan(seed, settings) if plan is None else list(plan)
    result = Result(seed, faults)
    began = time.process_time()
    collects = gc.isenabled()
    gc.disable()
    world = World(seed, settings)
    try:
        _run(world, faults, result, goes_on=plan is None)
    except Violation as violation:
        result.violation, result.message = violation.name, str(violation)
    except Exception as error:
        result.violation, result.message = EXCEPTION, f"{type(error).__name__}: {error}"
        world.tracer.add(world.now_ms, "-", EXCEPTION, {"what": _where(error)})
    finally:
        if keep_trace:
            result.trace = world.tracer.all_lines()
        elif result.violation is not None:
            # Other traces are not read, and thousands of results are kept.
            result.trace = world.tracer.lines()
        result.digest = world.tracer.digest()
        result.virtual_ms = world.now_ms
        result.steps = world.loop.steps
        world.close()
        if collects:
            gc.enable()
    result.cpu_seconds = time.process_time() - began
    return result


def _where(error: BaseException) -> str:
    """Returns the innermost frames of its traceback."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return " < ".join(reversed(frames[-6:]))


def _run(world: World, plan: list[Fault], result: Result, *, goes_on: bool) -> None:
    invariants = Invariants(world)
    recorder = Recorder(
        invariants,
        lambda: world.now_ms,
        [topic.name for topic in TOPICS],
        partial(_epoch_led, world),
        Unreadable(world),
    )
    coverage = Coverage(world, invariants, recorder.losses.seen)
    world.on_answer(recorder.answered)
    world.client_observer = recorder
    injector = FaultInjector(world)
    world.on_fault(lambda fault, phase: recorder.nemesis(f"{phase} {fault.kind}", str(fault.args)))
    try:
        watched, noted = invariants.watching(), coverage.noting()
        throttled = watching_throttle(invariants.found, recorder.losses.seen)
        with watched, noted, throttled, world.mover.heard(), _short_times():
            world.run(_live(world, invariants, recorder, injector, plan, goes_on=goes_on))
            invariants.raise_found()
            contents = read_replicas(world, invariants)
            note_digests(contents, recorder)
            require_named_known(world, contents)
            for idempotent in (True, False):
                topics = [t.name for t in TOPICS if (t.acks is Acks.ALL) is idempotent]
                require_clean_history(recorder, topics, idempotent=idempotent)
            require_clean_lives(recorder)
            require_equal_replicas(contents)
    finally:
        result.acknowledged = recorder.acknowledged
        result.faults, result.rules = +injector.effects, coverage.rules


@contextmanager
def _short_times() -> Iterator[None]:
    """Shortens how long brokers allow for deliveries, and trust what they know of other clocks."""
    with (
        patched(producer_state, "LONGEST_DELIVERY_MS", lambda _: LONGEST_DELIVERY_MS),
        patched(clock_check, "PEER_VALID_MS", lambda _: PEER_VALID_MS),
    ):
        yield


def _epoch_led(world: World, address: str, partition: TopicPartition) -> int:
    process = world.broker_at(address)
    broker = None if process is None else process.broker
    if broker is None:
        return NO_EPOCH
    found = next((p for p in broker.manager.all() if p.name == partition), None)
    return NO_EPOCH if found is None or found.leading is None else found.leader_epoch


def _flipped(plan: Sequence[Fault]) -> set[int]:
    """Returns the brokers on whose disks bits or sectors were damaged."""
    kinds = ("bit_flip", "bad_sector")
    hosts = [str(fault.args[0]) for fault in plan if fault.kind in kinds]
    return {int(host.rpartition("-")[2]) for host in hosts}


async def _enough_faults(world: World, injector: FaultInjector, plan: list[Fault]) -> None:
    """Runs more faults until enough had an effect, and appends them to the plan."""
    rng = world.rng("more faults")
    for _ in range(MAX_MORE_FAULTS):
        if struck(injector.effects) >= MIN_FAULTS:
            return
        plan.append(draw_one_more(rng, world.settings, world.now_ms))
        await injector.run(plan[-1:])


async def _enough_work(recorder: Recorder) -> None:
    for _ in range(MORE_WORK_S):
        if recorder.acknowledged >= MIN_ACKNOWLEDGED:
            return
        await asyncio.sleep(1)


async def _live(
    world: World,
    invariants: Invariants,
    recorder: Recorder,
    injector: FaultInjector,
    plan: list[Fault],
    *,
    goes_on: bool,
) -> None:
    disks = DiskWatch(world, invariants, recorder.losses.seen)
    watches = (LagWatch(world, invariants), ControllerWatch(world), disks)
    watching = [asyncio.create_task(watch.run()) for watch in watches]
    workload = Workload(world, recorder, draw_topics(world.rng("topics")))
    await workload.start()
    await injector.run(plan)
    if goes_on:
        await _enough_faults(world, injector, plan)
    await asyncio.sleep(max(0, MIN_WORK_MS - world.now_ms) / 1000)
    await injector.heal()
    has_healed = asyncio.Event()
    recovering = asyncio.create_task(Operator(world).recover_until(has_healed))
    await require_healed(world, invariants)
    has_healed.set()
    await recovering
    await _enough_work(recorder)
    await workload.stop()
    there = [p for p in workload.visited_partitions() if p.topic in invariants.store.topics]
    partitions = [p for topic in workload.topics for p in topic.all_partitions]
    probes = await require_writable(world, recorder, [*partitions, *there])
    # Partitions in which retention deletes cannot be read from their start.
    kept = [p for topic in workload.topics if topic.keeps_all for p in topic.all_partitions]
    ends = {p: probes[p].base_offset + probes[p].record_count for p in [*kept, *there]}
    await require_read(workload.readers, recorder, ends)
    workload.end()
    reader = world.client("drain")
    reached = await reader.spawn(drain(reader, recorder, ends, DRAIN_S))
    for partition, end in ends.items():
        if reached[partition] < end:
            raise Violation(
                "not_readable_after_healing",
                f"read up to {reached[partition]} of {end} within {DRAIN_S:.0f} s",
                partition=str(partition),
            )
    await require_healed(world, invariants)
    flipped = _flipped(plan) | world.data_losses.damaged_machines
    await require_moved_off_the_dead(world, invariants, flipped)
    await require_healed(world, invariants)
    await require_retention(world, invariants)
    for task in watching:
        task.cancel()
