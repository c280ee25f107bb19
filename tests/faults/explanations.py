"""Checks that `tidelog explain` named the cause of each fault, and blamed nothing that no fault had
touched. Pure.

A fault is *unexplained* if an explanation that was requested while it was in force, after the grace
of its kind, names none of the right causes. A finding is *misblamed* if it is a warning or worse
and blames a broker that no fault has touched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from faults.catalogue import KINDS, Ability
from faults.explicable import (
    BLAMING,
    EXPLICABLE,
    LASTING,
    OF_THE_MACHINE,
    SHORT_OF_CPU_S,
    STRIKE_ALL,
    Expected,
)
from faults.gaps import Window
from faults.injected import DoneStep, Strike
from tidelog.inspection.explain import causes
from tidelog.inspection.model import Finding

# How long an answer may take while services are silent. A fault that was in force for its grace and
# this time without any answer is unexplained.
ANSWER_S = 8.0
SERIOUS = frozenset({causes.CRITICAL, causes.WARNING})
_AGE = re.compile(r"\(?\d[\d.,]* (ms|s|min|h)( \d+ (s|min))?( ago)?\)?")


@dataclass(frozen=True, slots=True)
class Asked:
    """One explanation, and when it was requested and answered, by the monotonic clock.

    `problem`: why there was none; empty: there was one."""

    asked_ms: int
    answered_ms: int
    findings: Sequence[Finding] = ()
    problem: str = ""

    @property
    def said(self) -> str:
        if self.problem:
            return f"no answer: {self.problem}"
        return "; ".join(f"{f.severity}: {f.summary}" for f in self.findings) or "all is well"


@dataclass(frozen=True, slots=True)
class Unexplained:
    """`after_s`: from when the fault was in force until the explanation was requested."""

    step: str
    kind: str
    target: str
    after_s: float
    missing: Sequence[str]
    said: str

    def __str__(self) -> str:
        return (
            f"{self.kind} on {self.target} in {self.step} was not explained after "
            f"{self.after_s:.1f} s: none of {', '.join(self.missing)}; explain said: {self.said}"
        )


@dataclass(frozen=True, slots=True)
class Misblamed:
    """`step`: empty: between steps."""

    step: str
    at_s: float
    summary: str

    def __str__(self) -> str:
        where = f"in {self.step}" if self.step else "while no fault was in force"
        return f"explain blamed what no fault had touched {where}: {self.summary}"


@dataclass(slots=True)
class ExplainingService:
    """The explanations of a run. `counts`: by kind, how many strikes were explained, unexplained,
    too short, or of a kind that needs no explanation."""

    asked: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    unexplained: list[Unexplained] = field(default_factory=list)
    misblamed: list[Misblamed] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        return [*map(str, self.unexplained), *map(str, self.misblamed)]


EXPLAINED, UNEXPLAINED, TOO_SHORT, NOTHING = "explained", "unexplained", "too_short", "nothing"


def judge_explanations(
    asks: Sequence[Asked], steps: Sequence[DoneStep], earlier: Sequence[DoneStep] = ()
) -> ExplainingService:
    """`asks`: in the order of their requests.
    `earlier`: the steps of earlier runs, whose cluster may be the same: some findings outlast the
    run of their fault."""
    found = ExplainingService(asked=len(asks))
    for done in steps:
        for fault in done.faults:
            counts = found.counts.setdefault(fault.kind, Counter())
            for strike in fault.strikes:
                outcomes = [
                    _judge(_right_for(expected, strike, done), strike, done, fault.kind, asks)
                    for expected in EXPLICABLE[fault.kind].expected
                ]
                bad = [outcome for outcome in outcomes if isinstance(outcome, Unexplained)]
                found.unexplained += bad
                counts[UNEXPLAINED if bad else _best(outcomes)] += 1
    found.misblamed += _misblamed(asks, steps, earlier)
    return found


def _best(outcomes: Sequence[object]) -> str:
    if not outcomes:
        return NOTHING
    return EXPLAINED if EXPLAINED in outcomes else TOO_SHORT


def _right_for(expected: Expected, strike: Strike, done: DoneStep) -> Expected:
    others = [s for fault in done.faults for s in fault.strikes if s is not strike]
    if not any(other.brokers & strike.brokers for other in others):
        return expected
    return expected._replace(causes=expected.causes | expected.causes_if_struck_again)


def _judge(
    expected: Expected, strike: Strike, done: DoneStep, kind: str, asks: Sequence[Asked]
) -> Unexplained | str:
    begin_ms = strike.in_force.begin_ms + round(expected.grace_s * 1000)
    end_ms = done.window.end_ms if expected.lasts else strike.in_force.end_ms
    # An answer describes the state at some moment after the request.
    due = [ask for ask in asks if begin_ms <= ask.asked_ms and ask.answered_ms <= end_ms]
    is_named = _naming(expected, strike, asks)
    if not due:
        early = [ask for ask in asks if strike.in_force.begin_ms <= ask.asked_ms <= end_ms]
        if any(map(is_named, early)):
            return EXPLAINED
        if end_ms - begin_ms < ANSWER_S * 1000:
            return TOO_SHORT
    missed = [ask for ask in due if not is_named(ask)]
    if due and (len(missed) < len(due) if expected.lasts else not missed):
        return EXPLAINED
    after_s, said = expected.grace_s, "no answer came in time"
    if missed:
        after_s = (missed[0].asked_ms - strike.in_force.begin_ms) / 1000
        said = missed[0].said
    return Unexplained(done.step.name, kind, strike.target, after_s, sorted(expected.causes), said)


def _naming(expected: Expected, strike: Strike, asks: Sequence[Asked]) -> Callable[[Asked], bool]:
    """Whether an explanation names the cause. A lasting finding counts only if it is new since the
    strike."""
    earlier: set[tuple[str, ...]] = set()
    if expected.lasts:
        before = [ask for ask in asks if ask.asked_ms < strike.begin_ms]
        earlier = {_without_ages(f) for ask in before[-1:] for f in ask.findings}

    def is_named(ask: Asked) -> bool:
        return any(
            finding.cause in expected.causes
            and (not expected.names_broker or f"broker-{finding.broker}" in strike.brokers)
            and (not expected.names_second or _names(finding, strike.second_place))
            and _without_ages(finding) not in earlier
            for finding in ask.findings
        )

    return is_named


def _names(finding: Finding, place: str) -> bool:
    words = " ".join((finding.summary, *finding.evidence)).split()
    return place in {word.rstrip(",:;") for word in words}


def _without_ages(finding: Finding) -> tuple[str, ...]:
    lines = (finding.cause, finding.summary, *finding.evidence)
    return tuple(_AGE.sub("", line) for line in lines)


def _misblamed(
    asks: Sequence[Asked], steps: Sequence[DoneStep], earlier: Sequence[DoneStep]
) -> Iterator[Misblamed]:
    """Each finding once for each step."""
    reported: set[tuple[str, str, int]] = set()
    begin_ms = asks[0].asked_ms if asks else 0
    for ask in asks:
        during = [done for done in steps if _overlap(done.window, ask)]
        step = during[-1] if during else None
        touched = _touched(during, ask)
        begun = [done for done in steps if done.window.begin_ms <= ask.answered_ms]
        before = _touched([*earlier, *begun], ask)
        for finding in ask.findings:
            excused = before if finding.cause in LASTING else touched
            if not _blames_others(finding, excused) or _is_short_of_cpu(finding.broker, ask, asks):
                continue
            key = (step.step.name if step else "", finding.cause, finding.broker)
            if key not in reported:
                reported.add(key)
                yield Misblamed(key[0], (ask.asked_ms - begin_ms) / 1000, finding.summary)


def _overlap(window: Window, ask: Asked) -> bool:
    return window.begin_ms <= ask.answered_ms and ask.asked_ms <= window.end_ms


def _touched(steps: Sequence[DoneStep], ask: Asked) -> frozenset[str] | None:
    """The brokers that faults of these steps had struck by then; None: all. Faults of clients touch
    none."""
    brokers: set[str] = set()
    for done in steps:
        for fault in done.faults:
            if KINDS[fault.kind].needs is Ability.CLIENT_RELAY:
                continue
            begun = [s for s in fault.strikes if s.begin_ms <= ask.answered_ms]
            if begun and fault.kind in STRIKE_ALL:
                return None
            brokers.update(*(strike.brokers for strike in begun))
    return frozenset(brokers)


def _is_short_of_cpu(broker: int, ask: Asked, asks: Sequence[Asked]) -> bool:
    begin_ms = ask.asked_ms - SHORT_OF_CPU_S * 1000
    end_ms = ask.answered_ms + SHORT_OF_CPU_S * 1000
    return any(
        finding.broker == broker and finding.cause in OF_THE_MACHINE
        for other in asks
        if begin_ms <= other.asked_ms <= end_ms
        for finding in other.findings
    )


def _blames_others(finding: Finding, touched: frozenset[str] | None) -> bool:
    if touched is None or finding.severity not in SERIOUS or finding.cause not in BLAMING:
        return False
    if finding.broker < 0 or f"broker-{finding.broker}" in touched:
        return False
    if finding.cause != causes.REPLICA_CUT_OFF:
        return True
    # A link has two ends.
    words = " ".join((finding.summary, *finding.evidence)).replace("broker ", "broker-")
    return not any(re.search(rf"\b{broker}\b", words) for broker in touched)
