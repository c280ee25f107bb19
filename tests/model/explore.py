"""Explores every state within the budgets of a scenario, breadth first.

So the first violation that is found has the shortest story.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from . import invariants, manager_steps
from .broker_actions import BrokerActions, Label
from .cluster_actions import ClusterActions
from .controller_steps import Controller
from .healing import Healing
from .scenarios import Scenario
from .steps import Steps
from .values import (
    BROKERS,
    NEVER,
    NOT_SYNCED,
    PRESENT,
    SOUND,
    UNLED,
    Budget,
    Command,
    Form,
    Ghost,
    Registered,
    Replica,
    Store,
)
from .world import BUDGET, GHOST, STORE, Expanded, State, World


class Violation(NamedTuple):
    invariant: str
    path: tuple[tuple[Label, Expanded], ...]  # each step and the state after it


class Outcome(NamedTuple):
    """The result of an exploration.

    - `complete`: every state within the budgets was seen
    """

    scenario: Scenario
    states: int
    transitions: int
    depth: int
    seconds: float
    complete: bool
    violation: Violation | None


class Exploration:
    def __init__(self, scenario: Scenario, *, heals: bool = True) -> None:
        """`heals`: whether every state is checked for healing."""
        self._asks_healing = heals
        self.scenario = scenario
        self.world = World()
        self._controller = Controller(synced=scenario.synced, unclean=scenario.unclean)
        self.steps = steps = Steps(self.world, self._controller, scenario)
        self._brokers = BrokerActions(self.world, scenario, steps)
        self._cluster = ClusterActions(self.world, scenario, steps, self._brokers)
        first = self.start()
        nothing = first[GHOST], first[BUDGET]
        self._healing = Healing(self.world, steps, nothing, has_topics=scenario.has_topics)
        self._sound: dict[tuple[int, int, int], str | None] = {}

    def start(self) -> State:
        """Returns the first state: three running brokers, and a partition that broker 1 leads.

        All know the partition.
        """
        flushed = 0 if self.scenario.synced else NOT_SYNCED
        empty = [
            Replica(b, True, False, SOUND, 1, 1, 1, 0, 0, (), None, NEVER, None, flushed)
            for b in BROKERS
        ]
        registered = Registered(1, True, 1)
        store = Store(UNLED, (registered, registered, registered), 0)
        if "view" in self.scenario.late:
            store = store._replace(seen=store.registered, noticed=store.registered)
        first = self._controller.decide(store, tuple(empty))
        assert first is not None
        if self.scenario.unclean:
            first = first._replace(isr=first.isr[:2])
        form = Form.ALL if self.scenario.has_topics else Form.ONE
        replicas = [
            manager_steps.take(r, Command("command", r.broker, 1, first, PRESENT, 0, form)).replica
            for r in empty
        ]
        return self.world.intern(
            Expanded(
                store._replace(value=first),
                (replicas[0], replicas[1], replicas[2]),
                (),
                Ghost((), (1, 1, 1), 1 << first.epoch),
                Budget(self.scenario.faults, self.scenario.records),
            )
        )

    def broken_in(self, state: State) -> str | None:
        store, ghost = state[STORE], state[GHOST]
        for slot in BROKERS:
            key = (state[slot], store, ghost)
            if key not in self._sound:
                self._sound[key] = invariants.broken_by(
                    self.world.replicas.values[state[slot]],
                    self.world.stores.values[store],
                    self.world.ghosts.values[ghost],
                )
            broken = self._sound[key]
            if broken is not None:
                return broken
        if self._asks_healing and not self._healing.heals(state):
            return invariants.HEALS
        return None

    def run(self, *, max_states: int, max_seconds: float) -> Outcome:
        """Explores until a violation or a bound. `max_seconds` is processor time."""
        started = time.process_time()
        first = self.start()
        seen: dict[State, int] = {first: 0}
        order: list[State] = [first]
        parents = array("l", [-1])
        labels: list[Label] = [()]
        depths = array("l", [0])
        transitions = 0
        position = 0
        while position < len(order):
            state = order[position]
            for label, after, broken in chain(self._brokers.all(state), self._cluster.all(state)):
                transitions += 1
                known = after in seen
                if known and broken is None:
                    continue
                if broken is None:
                    broken = self.broken_in(after)
                if not known:
                    seen[after] = len(order)
                    order.append(after)
                    parents.append(position)
                    labels.append(label)
                    depths.append(depths[position] + 1)
                if broken is not None:
                    path = [
                        (label, self.world.expand(after)),
                        *self._back(position, order, parents, labels),
                    ]
                    return Outcome(
                        self.scenario,
                        len(order),
                        transitions,
                        depths[position] + 1,
                        time.process_time() - started,
                        False,
                        Violation(broken, tuple(reversed(path))),
                    )
            position += 1
            if position % 256 == 0 and (
                len(order) > max_states or time.process_time() - started > max_seconds
            ):
                break
        seconds = time.process_time() - started
        complete = position == len(order)
        return Outcome(self.scenario, len(order), transitions, depths[-1], seconds, complete, None)

    def _back(
        self, position: int, order: list[State], parents: array[int], labels: list[Label]
    ) -> Iterator[tuple[Label, Expanded]]:
        while position >= 0:
            yield labels[position], self.world.expand(order[position])
            position = parents[position]
