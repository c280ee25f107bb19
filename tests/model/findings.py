"""Results of explorations, which run in processes of their own."""

from __future__ import annotations

import gc
import logging
import traceback
from typing import Any, NamedTuple

import structlog

from . import story
from .explore import Exploration, Outcome
from .rules import Rule, switched_off
from .scenarios import REMOVALS, Scenario

MAX_STATES = 5_000_000


class Finding(NamedTuple):
    """The result of a scenario.

    - `rule`: the rule that was switched off; '': none
    """

    rule: str
    scenario: str
    budgets: dict[str, Any]
    states: int
    transitions: int
    depth: int
    seconds: float
    complete: bool
    invariant: str
    story: list[str]

    @property
    def as_it_should_be(self) -> bool:
        if self.rule:
            return bool(self.invariant)
        return self.complete and not self.invariant

    @property
    def verdict(self) -> str:
        if self.invariant:
            return "caught" if self.rule else "VIOLATED"
        if self.rule:
            return "NOT CAUGHT"
        return "holds" if self.complete else "NOT EXHAUSTED"


def begin_process() -> None:
    """Configures a worker process.

    Production code logs nothing, since the story shows what it does. The garbage collector is
    off: millions of states are kept, and nothing becomes garbage before an exploration ends.
    """
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=silent)
    gc.disable()


def explore(scenario: Scenario, max_seconds: float) -> Finding:
    gc.collect()
    try:
        outcome = Exploration(scenario).run(max_states=MAX_STATES, max_seconds=max_seconds)
    except Exception as error:
        # This also checks changed production code: whatever it raises is a finding.
        broken = f"no step raises: {type(error).__name__}: {error}"
        where = traceback.format_exc(limit=-3).splitlines()
        return Finding("", scenario.name, scenario.budgets(), 0, 0, 0, 0.0, False, broken, where)
    return _finding("", outcome)


def explore_without(index: int, max_seconds: float) -> Finding:
    """Explores for safety alone: other checks find rules without which the cluster only stalls."""
    gc.collect()
    rule, scenario = REMOVALS[index]
    with switched_off(rule):
        outcome = Exploration(scenario, heals=False).run(
            max_states=MAX_STATES, max_seconds=max_seconds
        )
    return _finding(rule.name, outcome)


def unexplored(job: Scenario | int) -> Finding:
    """Returns the finding of a scenario, or of a removal by its number, that had no time left."""
    rule, scenario = ("", job) if isinstance(job, Scenario) else REMOVALS[job]
    name = rule.name if isinstance(rule, Rule) else rule
    return Finding(name, scenario.name, scenario.budgets(), 0, 0, 0, 0.0, False, "", [])


def _finding(rule: str, outcome: Outcome) -> Finding:
    violation = outcome.violation
    return Finding(
        rule,
        outcome.scenario.name,
        outcome.scenario.budgets(),
        outcome.states,
        outcome.transitions,
        outcome.depth,
        round(outcome.seconds, 1),
        outcome.complete,
        violation.invariant if violation else "",
        story.lines(violation) if violation else [],
    )
