"""Carries out the steps of a run one after another, and waits until the cluster is intact again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from faults.cluster import ClusterFailedError, LogSince
from faults.effects import (
    STORY_RULES,
    Measures,
    is_yet_to_show,
    lacking,
    lacking_of_story,
    logged_after,
)
from faults.gaps import Window
from faults.injected import DoneStep, InjectedFault, Strike
from faults.kinds import INJECT, Active
from faults.load import now_ms, wall_ahead_ms
from faults.plan import BOUNCE_PAUSE_S, SETTLE_S, Fault, Step
from faults.scene import NoTargetError, Scene
from faults.verdict import WHOLE_AGAIN_S
from tidelog.history import HistoryWriter, Nemesis

# How long an effect may take that shows only after the end of a fault, such as a process that came
# back.
EFFECT_TIMEOUT_S = 60.0
# How much longer a fault lasts whose effect shows only while it lasts, if the effect is late
# because other faults delay it.
LONGER_S = 15.0
EFFECT_POLL_S = 0.2
# Between the windows of two steps: the effect of the next step begins with the last write before
# it.
APART_S = 0.5

Say = Callable[[str], None]


class StepsDone:
    """`failed`: the faults that could not be injected or healed."""

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
            if isinstance(outcome, (ClusterFailedError, NoTargetError)):
                done.failed.append(f"{fault} in {step.name} was not injected: {outcome}")
            elif isinstance(outcome, BaseException):
                raise outcome
        # Counts from the end of the last fault: checking effects has taken time since.
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
        logged = await logged_by_story(scene.topic, step, injected, logs)
        for lack in lacking_of_story(step, logged):
            say(f"  NO EFFECT: {lack}")
        done.steps.append(DoneStep(step, injected, window, whole_s, logged))
    return done


async def logged_by_story(
    topic: str, step: Step, injected: Sequence[InjectedFault], logs: Sequence[LogSince]
) -> int:
    """After how many faults of the step brokers logged its required effect, for this topic."""
    rule = STORY_RULES.get(step.name)
    if rule is None:
        return 0
    ahead_ms = wall_ahead_ms()
    logged_ms = [
        at - ahead_ms for log in logs for at in await log.logged_ms(rule.logged.value, topic)
    ]
    begins_ms = [s.begin_ms for f in injected if f.kind == rule.after for s in f.strikes]
    return logged_after(sorted(begins_ms), logged_ms)


async def inject(
    scene: Scene, fault: Fault, step_begin_ms: int, history: HistoryWriter, say: Say
) -> InjectedFault:
    """Injects a fault all its times, each time once the cluster is intact again.

    If that takes too long the fault comes fewer times, and so lacks its effect."""
    await asyncio.sleep(max(0.0, fault.at_s - (now_ms() - step_begin_ms) / 1000))
    strikes: list[Strike] = []
    waits_s: list[float] = []
    for time in range(fault.times):
        if time:
            whole_s = await _whole_again(scene, fault, strikes[-1].end_ms, say)
            if whole_s is None:
                break
            waits_s.append(whole_s)
        begin_ms = now_ms()
        history.write(Nemesis(now_ms(), fault.kind))
        try:
            active = await INJECT[fault.kind](scene)
            in_force_ms = now_ms()
            say(f"{fault.kind}: {active.target}")
            try:
                await asyncio.sleep(fault.seconds)
                seen = await active.measured()
                late = partial(is_yet_to_show, fault.kind)
                seen = await _seen(active, late, seen, LONGER_S)
            finally:
                force = Window(in_force_ms, now_ms())
                await active.heal()
            end_ms = now_ms()
            history.write(Nemesis(end_ms, f"end of {fault.kind}", active.target))
            seen = await _seen(active, partial(lacking, fault.kind), seen, EFFECT_TIMEOUT_S)
            strikes.append(Strike(active.target, begin_ms, end_ms, seen, force))
        finally:
            # A struck service may be struck again only once it is back, or known not to have been
            # struck.
            scene.release()
    injected = InjectedFault(fault.kind, fault.times, strikes, waits_s)
    for lack in injected.lacks:
        say(f"  NO EFFECT: {lack}")
    return injected


async def _whole_again(scene: Scene, fault: Fault, healed_ms: int, say: Say) -> float | None:
    """The seconds from healing until the cluster was intact, followed by a pause. None: not in
    time."""
    since_s = (now_ms() - healed_ms) / 1000
    whole_s, missing = await scene.until_whole(WHOLE_AGAIN_S)
    if whole_s is None:
        say(f"  {fault.kind} does not come again, for the cluster is not whole: {missing}")
        return None
    await asyncio.sleep(BOUNCE_PAUSE_S)
    return round(since_s + whole_s, 2)


async def _seen(
    active: Active,
    lacks: Callable[[Measures], object],
    before: Measures,
    timeout_s: float,
) -> dict[str, float]:
    """The largest measurement of each strike, until no effect is missing or the time is up."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    seen = dict(before)
    while lacks(seen) and loop.time() < deadline_s:
        await asyncio.sleep(EFFECT_POLL_S)
        for name, value in (await active.measured()).items():
            seen[name] = max(seen.get(name, 0), value)
    return seen
