"""Situations that the model merges are equivalent: separated, they reach no further state."""

from __future__ import annotations

import pytest

from model.explore import Exploration
from model.scenarios import Scenario, of
from model.steps import Steps
from model.values import PRESENT, FetchRequest
from model.world import STORE, Expanded, State
from tidelog.model import NO_EPOCH


class Recorded(Exploration):
    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario, heals=False)
        self.reached: list[State] = []

    def broken_in(self, state: State) -> str | None:
        self.reached.append(state)
        return super().broken_in(state)

    def as_merged(self, state: State) -> Expanded:
        """Returns the state after the arrival of commands that contain no news for a follower."""
        expanded = self.world.expand(state)
        first, second, third = (
            r._replace(revision=PRESENT) if self.steps.knows_all(r, state[STORE]) else r
            for r in expanded.replicas
        )
        return expanded._replace(replicas=(first, second, third))

    def as_lost(self, state: State) -> Expanded:
        """Returns the state after the loss of fetches to a broker that knows a later epoch."""
        expanded = self.world.expand(state)
        known = [NO_EPOCH if r.value is None else r.value.epoch for r in expanded.replicas]
        kept = tuple(
            m
            for m in expanded.messages
            if not isinstance(m, FetchRequest) or m.position.epoch >= known[m.position.leader - 1]
        )
        return expanded._replace(messages=kept)


def run(scenario: Scenario) -> Recorded:
    recorded = Recorded(scenario)
    outcome = recorded.run(max_states=100_000, max_seconds=60)
    assert outcome.complete
    return recorded


def test_a_command_that_says_nothing_new_to_a_follower_leads_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = Scenario("crashes", 1, 1, 2)
    merged = run(scenario)
    with monkeypatch.context() as patched:
        patched.setattr(Steps, "knows_all", lambda *_: False)
        apart = run(scenario)
    assert len(merged.reached) < len(apart.reached)
    assert {merged.as_merged(s) for s in merged.reached} == {
        apart.as_merged(s) for s in apart.reached
    }


def test_a_fetch_that_is_fenced_leads_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario("late fetches", 1, 0, 2, 1, of("fetch"), of("lease"))
    merged = run(scenario)
    with monkeypatch.context() as patched:
        patched.setattr(Steps, "_fences", lambda *_: False)
        apart = run(scenario)
    assert len(merged.reached) < len(apart.reached)
    assert {merged.as_lost(s) for s in merged.reached} == {apart.as_lost(s) for s in apart.reached}
