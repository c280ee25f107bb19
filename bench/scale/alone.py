"""A controller alone with very many partitions, in its own process for each size."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import replace

from bench.process_figures import rss_mb
from bench.report import at_most
from bench.scale.lone_controller import LoneController
from bench.scale.quantities import Quantity, SizeFigures, outcome
from bench.suite.outcome import Outcome
from bench.suite.progress import Display
from bench.suite.settings import Settings
from bench.worker import Worker
from tidelog_controller.state.events import ConnectionEnded, CreateTopic, DialOutcome
from tidelog_runtime.garbage_collection import THRESHOLDS
from tidelog_runtime.metadata.schema import STOPPING

BROKERS = 3
FACTOR = 3
PARTITIONS_OF_TOPIC = 1_000
BOUNDED_SIZE = 100_000
MAX_GROWTH = 1.15

CPU = "s of processor"
QUANTITIES = (
    Quantity("creation_cpu_s", "creation, deciding", CPU, grows_linearly=True),
    Quantity("takeover_cpu_s", "takeover, deciding, until brokers have acknowledged all", CPU,
             grows_linearly=True),
    # With more partitions, more answers to commands arrive before the last election.
    Quantity("plan_cpu_s", "failover of a third, until all are elected", CPU, 3.0),
    Quantity("election_cpu_s", "failover of a third, until all are elected, without the handling "
             "of answers", CPU, grows_linearly=True),
    Quantity("failover_cpu_s", "failover of a third, with the other ISRs and all commands", CPU,
             grows_linearly=True),
    Quantity("failover_emitting_cpu_s", "failover, serializing events (deferred)", CPU,
             grows_linearly=True),
    Quantity("shutdown_cpu_s", "controlled shutdown of a broker", CPU, grows_linearly=True),
    Quantity("memory_mb", "peak memory, including the simulated store", "MB", 1_000.0),
    Quantity("failover_leaders", "leaders that failed over", "partitions"),
    Quantity("failover_transactions", "transactions of the failover", "operations"),
    Quantity("failover_commands", "commands of the failover", "operations"),
)  # fmt: skip


async def measure(partitions: int) -> SizeFigures:
    # As the services configure it; during a burst they run no garbage collection.
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    figures = SizeFigures(partitions)
    lone = LoneController(BROKERS)
    lone.take_over()
    before = lone.spent
    of_topic = min(partitions, PARTITIONS_OF_TOPIC)
    for number in range(partitions // of_topic):
        lone.feed(CreateTopic(number, f"scale-{number}", of_topic, FACTOR, {}, False, 60_000))
    figures.found["creation_cpu_s"] = lone.spent.since(before).deciding_s
    before = lone.spent
    lone.take_over()
    figures.found["takeover_cpu_s"] = lone.spent.since(before).deciding_s
    dead = BROKERS
    figures.found |= _failover(lone, dead)
    before = lone.spent
    lone.set_registration(1, STOPPING)
    lone.feed()
    figures.found["shutdown_cpu_s"] = lone.spent.since(before).deciding_s
    figures.found["memory_mb"] = rss_mb(os.getpid(), "VmHWM")
    if lone.led.get(1, 0) or len(lone.leaders) != partitions:
        lone.errors.append(f"leaders by broker are {lone.led}, of {len(lone.leaders):,} partitions")
    if lone.errors:
        figures.problems["simulation"] = lone.errors[0]
    return figures


def _failover(lone: LoneController, dead: int) -> dict[str, float]:
    leaders = lone.led[dead]
    before = lone.spent
    ended = ConnectionEnded(dead, lone.broker_epoch(dead), DialOutcome.REFUSED, 3)
    lone.feed(ended, until=lambda: not lone.led[dead])
    plan = lone.spent.since(before)
    lone.handle_remaining()
    whole = lone.spent.since(before)
    return {
        "plan_cpu_s": plan.deciding_s,
        "election_cpu_s": plan.deciding_s - plan.answers_s,
        "failover_cpu_s": whole.deciding_s,
        "failover_emitting_cpu_s": whole.emitting_s,
        "failover_leaders": leaders,
        "failover_transactions": whole.transactions,
        "failover_commands": whole.commands,
    }


async def run(settings: Settings, display: Display) -> Outcome:
    display.begin("alone", len(settings.alone_sizes))
    sizes = []
    for partitions in settings.alone_sizes:
        display.step(f"{partitions:,} partitions")
        began = time.perf_counter()
        async with Worker("controller") as worker:
            sizes.append(await worker.call(measure, partitions))
        display.note(f"{partitions:,} partitions in {time.perf_counter() - began:.0f} s")
    found = outcome(
        "alone",
        "Cost of a controller alone, with simulated brokers and store",
        QUANTITIES,
        BOUNDED_SIZE,
        sizes,
    )
    return with_growth(found)


def with_growth(found: Outcome) -> Outcome:
    """Adds the bounds on growth: processor time must grow linearly."""
    exponents = found.details["growth_exponents"]
    assert isinstance(exponents, dict)
    bounds = [
        at_most(f"growth of {quantity.text}: power of n", power, MAX_GROWTH, "")
        for quantity in QUANTITIES
        if quantity.grows_linearly and (power := exponents.get(quantity.key)) is not None
    ]
    return replace(found, results=[*found.results, *bounds])
