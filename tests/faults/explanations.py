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
from tidelog.inspection.state_reports import Finding

# How long an answer may take while services are silent. A fault that was in force for its grace and
# this time without any answer is unexplained.
ANSWER_S = 8.0
SERIOUS = frozenset({causes.CRITICAL, causes.WARNING})
_AGE = re.compile(r"\(?\d[\d.,]* (ms|s|min|h)( \d+ (s|min))?( ago)?\)?")


@dataclass(frozen=True, slots=True)
class TimedExplanation:
    """One explanation, and when it was requested and answered, by the monotonic clock.

    `problem`: why there was none; empty: there was one."""

    requested_ms: int
    answered_ms: int
    findings: Sequence[Finding] = ()
    problem: str = ""

    @property
    def text(self) -> str:
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
    reported: str

    def __str__(self) -> str:
        return (
            f"{self.kind} on {self.target} in {self.step} was not explained after "
            f"{self.after_s:.1f} s: none of {', '.join(self.missing)}; explain reported: "
            f"{self.reported}"
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
class ExplainVerdict:
    """The explanations of a run. `counts`: by kind, how many strikes were explained, unexplained,
    too short, or of a kind that needs no explanation."""

    requests: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    unexplained: list[Unexplained] = field(default_factory=list)
    misblamed: list[Misblamed] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        return [*map(str, self.unexplained), *map(str, self.misblamed)]


EXPLAINED, UNEXPLAINED, TOO_SHORT, NOTHING = "explained", "unexplained", "too_short", "nothing"


def judge_explanations(
    explanations: Sequence[TimedExplanation],
    steps: Sequence[DoneStep],
    earlier: Sequence[DoneStep] = (),
) -> ExplainVerdict:
    """`explanations`: in the order of their requests.
    `earlier`: the steps of earlier runs, whose cluster may be the same: some findings outlast the
    run of their fault."""
    found = ExplainVerdict(requests=len(explanations))
    for done in steps:
        for fault in done.faults:
            counts = found.counts.setdefault(fault.kind, Counter())
            for strike in fault.strikes:
                outcomes = [
                    _judge(
                        _right_for(expected, strike, done), strike, done, fault.kind, explanations
                    )
                    for expected in EXPLICABLE[fault.kind].expected
                ]
                bad = [outcome for outcome in outcomes if isinstance(outcome, Unexplained)]
                found.unexplained += bad
                counts[UNEXPLAINED if bad else _best(outcomes)] += 1
    found.misblamed += _misblamed(explanations, steps, earlier)
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
    expected: Expected,
    strike: Strike,
    done: DoneStep,
    kind: str,
    explanations: Sequence[TimedExplanation],
) -> Unexplained | str:
    begin_ms = strike.in_force.begin_ms + round(expected.grace_s * 1000)
    end_ms = done.window.end_ms if expected.lasts else strike.in_force.end_ms
    # An answer describes the state at some moment after the request.
    due = [
        explanation
        for explanation in explanations
        if begin_ms <= explanation.requested_ms and explanation.answered_ms <= end_ms
    ]
    is_named = _naming(expected, strike, explanations)
    if not due:
        early = [
            explanation
            for explanation in explanations
            if strike.in_force.begin_ms <= explanation.requested_ms <= end_ms
        ]
        if any(map(is_named, early)):
            return EXPLAINED
        if end_ms - begin_ms < ANSWER_S * 1000:
            return TOO_SHORT
    missed = [explanation for explanation in due if not is_named(explanation)]
    if due and (len(missed) < len(due) if expected.lasts else not missed):
        return EXPLAINED
    after_s, reported = expected.grace_s, "no answer came in time"
    if missed:
        after_s = (missed[0].requested_ms - strike.in_force.begin_ms) / 1000
        reported = missed[0].text
    return Unexplained(
        done.step.name, kind, strike.target, after_s, sorted(expected.causes), reported
    )


def _naming(
    expected: Expected, strike: Strike, explanations: Sequence[TimedExplanation]
) -> Callable[[TimedExplanation], bool]:
    """Whether an explanation names the cause. A lasting finding counts only if it is new since the
    strike."""
    earlier: set[tuple[str, ...]] = set()
    if expected.lasts:
        before = [
            explanation
            for explanation in explanations
            if explanation.requested_ms < strike.begin_ms
        ]
        earlier = {_without_ages(f) for explanation in before[-1:] for f in explanation.findings}

    def is_named(explanation: TimedExplanation) -> bool:
        return any(
            finding.cause in expected.causes
            and (not expected.names_broker or f"broker-{finding.broker}" in strike.brokers)
            and (not expected.names_second or _names(finding, strike.second_place))
            and _without_ages(finding) not in earlier
            for finding in explanation.findings
        )

    return is_named


def _names(finding: Finding, place: str) -> bool:
    words = " ".join((finding.summary, *finding.evidence)).split()
    return place in {word.rstrip(",:;") for word in words}


def _without_ages(finding: Finding) -> tuple[str, ...]:
    lines = (finding.cause, finding.summary, *finding.evidence)
    return tuple(_AGE.sub("", line) for line in lines)


def _misblamed(
    explanations: Sequence[TimedExplanation], steps: Sequence[DoneStep], earlier: Sequence[DoneStep]
) -> Iterator[Misblamed]:
    """Each finding once for each step."""
    reported: set[tuple[str, str, int]] = set()
    begin_ms = explanations[0].requested_ms if explanations else 0
    for explanation in explanations:
        during = [done for done in steps if _overlap(done.window, explanation)]
        step = during[-1] if during else None
        touched = _touched(during, explanation)
        begun = [done for done in steps if done.window.begin_ms <= explanation.answered_ms]
        before = _touched([*earlier, *begun], explanation)
        for finding in explanation.findings:
            excused = before if finding.cause in LASTING else touched
            if not _blames_others(finding, excused) or _is_short_of_cpu(
                finding.broker, explanation, explanations
            ):
                continue
            key = (step.step.name if step else "", finding.cause, finding.broker)
            if key not in reported:
                reported.add(key)
                yield Misblamed(
                    key[0], (explanation.requested_ms - begin_ms) / 1000, finding.summary
                )


def _overlap(window: Window, explanation: TimedExplanation) -> bool:
    return window.begin_ms <= explanation.answered_ms and explanation.requested_ms <= window.end_ms


def _touched(steps: Sequence[DoneStep], explanation: TimedExplanation) -> frozenset[str] | None:
    """The brokers that faults of these steps had struck by then; None: all. Faults of clients touch
    none."""
    brokers: set[str] = set()
    for done in steps:
        for fault in done.faults:
            if KINDS[fault.kind].needs is Ability.CLIENT_RELAY:
                continue
            begun = [s for s in fault.strikes if s.begin_ms <= explanation.answered_ms]
            if begun and fault.kind in STRIKE_ALL:
                return None
            brokers.update(*(strike.brokers for strike in begun))
    return frozenset(brokers)


def _is_short_of_cpu(
    broker: int, explanation: TimedExplanation, explanations: Sequence[TimedExplanation]
) -> bool:
    begin_ms = explanation.requested_ms - SHORT_OF_CPU_S * 1000
    end_ms = explanation.answered_ms + SHORT_OF_CPU_S * 1000
    return any(
        finding.broker == broker and finding.cause in OF_THE_MACHINE
        for other in explanations
        if begin_ms <= other.requested_ms <= end_ms
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
