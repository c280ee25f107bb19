"""Carries out the steps of a run, one after another, and waits for the cluster to be whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from faults.cluster import ClusterFailedError, LogSince
from faults.effects import STORY_RULES, lacking, lacking_of_story
from faults.gaps import Window
from faults.kinds import INJECT, Active
from faults.load import now_ms
from faults.plan import BOUNCE_PAUSE_S, SETTLE_S, Fault, Step
from faults.scene import NobodyThereError, Scene
from faults.verdict import WHOLE_AGAIN_S, DoneStep, InjectedFault, Strike
from tidelog.history import HistoryWriter, Nemesis

# An effect that shows only after the end, as a process that came back, has so much time.
EFFECT_TIMEOUT_S = 60.0
EFFECT_POLL_S = 0.2
# Between the windows of two steps: what the next one causes began with the last write before it.
APART_S = 0.5

Say = Callable[[str], None]


class StepsDone:
    """`failed`: what could not be injected or healed."""

    def __init__(self) -> None:
        self.steps: list[DoneStep] = []
        self.failed: list[str] = []


async def carry_out(
    scene: Scene, steps: Sequence[Step], history: HistoryWriter, say: Say
) -> StepsDone:
    done = StepsDone()
    for step in steps:
        begin_ms = now_ms()
        logs = [scene.cluster.log_since_now(broker) for broker in scene.cluster.brokers]
        outcomes = await asyncio.gather(
            *(inject(scene.view(), fault, begin_ms, history, say) for fault in step.faults),
            return_exceptions=True,
        )
        injected = [outcome for outcome in outcomes if isinstance(outcome, InjectedFault)]
        for fault, outcome in zip(step.faults, outcomes, strict=True):
            if isinstance(outcome, (ClusterFailedError, NobodyThereError)):
                done.failed.append(f"{fault} in {step.name} was not injected: {outcome}")
            elif isinstance(outcome, BaseException):
                raise outcome
        # From the end of the last: looking for effects has taken time since.
        healed_ms = max((fault.end_ms for fault in injected), default=now_ms())
        since_s = (now_ms() - healed_ms) / 1000
        whole_s, missing = await scene.until_whole(WHOLE_AGAIN_S)
        if whole_s is None:
            say(f"not whole: {'; '.join(missing)}")
        else:
            whole_s = round(whole_s + since_s, 2)
            say(f"  whole again after {whole_s:.1f} s")
        await asyncio.sleep(SETTLE_S - APART_S)
        window = Window(begin_ms, now_ms())
        await asyncio.sleep(APART_S)
        told = await _told(step.name, logs)
        for lack in lacking_of_story(step.name, told):
            say(f"  NO EFFECT: {lack}")
        done.steps.append(DoneStep(step, injected, window, whole_s, told))
    return done


async def _told(name: str, logs: Sequence[LogSince]) -> int:
    rule = STORY_RULES.get(name)
    return 0 if rule is None else sum([await log.told(rule.told.value) for log in logs])


async def inject(
    scene: Scene, fault: Fault, step_begin_ms: int, history: HistoryWriter, say: Say
) -> InjectedFault:
    """All its times, each once the cluster is whole again after the one before. Where that takes
    too long it comes fewer times, and so lacks its effect."""
    await asyncio.sleep(max(0.0, fault.at_s - (now_ms() - step_begin_ms) / 1000))
    measures: dict[str, float] = {}
    strikes: list[Strike] = []
    for time in range(fault.times):
        if time and not await _may_come_again(scene, fault, say):
            break
        begin_ms = now_ms()
        history.write(Nemesis(now_ms(), fault.kind))
        active = await INJECT[fault.kind](scene)
        say(f"{fault.kind}: {active.target}")
        try:
            await asyncio.sleep(fault.seconds)
            seen = dict(await active.measured())
        finally:
            await active.heal()
        end_ms = now_ms()
        strikes.append(Strike(active.target, begin_ms, end_ms))
        history.write(Nemesis(end_ms, f"end of {fault.kind}", active.target))
        seen = await _seen(fault.kind, active, seen)
        # What it has struck may be struck again only once it is back.
        scene.release()
        for name, value in seen.items():
            measures[name] = measures.get(name, 0) + value
    for lack in lacking(fault.kind, measures, fault.times):
        say(f"  NO EFFECT: {lack}")
    return InjectedFault(fault.kind, fault.times, strikes, measures)


async def _may_come_again(scene: Scene, fault: Fault, say: Say) -> bool:
    whole_s, missing = await scene.until_whole(WHOLE_AGAIN_S)
    if whole_s is None:
        say(f"  {fault.kind} does not come again, for the cluster is not whole: {missing}")
        return False
    await asyncio.sleep(BOUNCE_PAUSE_S)
    return True


async def _seen(kind: str, active: Active, seen: dict[str, float]) -> dict[str, float]:
    """The most that was measured of each."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + EFFECT_TIMEOUT_S
    while lacking(kind, seen) and loop.time() < deadline_s:
        await asyncio.sleep(EFFECT_POLL_S)
        for name, value in (await active.measured()).items():
            seen[name] = max(seen.get(name, 0), value)
    return seen
