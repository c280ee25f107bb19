"""States as tuples of seven small numbers, each standing for one interned part, and
memories of every step by the numbers of its parts: however many states there are, a step
of the production code runs once for each pair of a replica and what happens to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from . import canonical
from .values import (
    Budget,
    Ghost,
    Message,
    Replica,
    Store,
)

T = TypeVar("T", bound=Hashable)

# Numbers of: store, replicas 1 to 3, messages, ghost, budget.
State = tuple[int, int, int, int, int, int, int]
STORE, MESSAGES, GHOST, BUDGET = 0, 4, 5, 6


class Parts(Generic[T]):
    """Values and their numbers."""

    def __init__(self, lives: Callable[[T], canonical.Masks]) -> None:
        self.values: list[T] = []
        self.lives: list[canonical.Masks] = []  # lives that each value names
        self._lives_of = lives
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
            self.lives.append(self._lives_of(value))
        return number


class Expanded(NamedTuple):
    """A state that can be read."""

    store: Store
    replicas: tuple[Replica, Replica, Replica]
    messages: tuple[Message, ...]
    ghost: Ghost
    budget: Budget


def _names_none(_: object) -> canonical.Masks:
    return 0, 0, 0


class World:
    """Numbers hold true for one exploration: what is remembered is what the production
    functions said while it lasted."""

    def __init__(self) -> None:
        self.stores = Parts[Store](canonical.of_store)
        self.replicas = Parts[Replica](canonical.of_replica)
        self.messages = Parts[tuple[Message, ...]](canonical.of_messages)
        self.messages.number(())  # 0: nothing is on its way
        self.ghosts = Parts[Ghost](_names_none)
        self.budgets = Parts[Budget](_names_none)
        # A renaming of lives, by the lives that a state names; what it makes of each part.
        self._renamings: dict[canonical.Masks, int] = {}
        self._tables: list[canonical.Renaming] = []
        self._renamed_stores: dict[tuple[int, int], int] = {}
        self._renamed_replicas: dict[tuple[int, int], int] = {}
        self._renamed_messages: dict[tuple[int, int], int] = {}
        self._renamed_ghosts: dict[tuple[int, int], int] = {}

    def expand(self, state: State) -> Expanded:
        replicas = self.replicas.values
        return Expanded(
            self.stores.values[state[0]],
            (replicas[state[1]], replicas[state[2]], replicas[state[3]]),
            self.messages.values[state[4]],
            self.ghosts.values[state[5]],
            self.budgets.values[state[6]],
        )

    def intern(self, expanded: Expanded) -> State:
        store, replicas, messages, ghost, budget = expanded
        return self.canonical(
            (
                self.stores.number(store),
                self.replicas.number(replicas[0]),
                self.replicas.number(replicas[1]),
                self.replicas.number(replicas[2]),
                self.messages.number(messages),
                self.ghosts.number(ghost),
                self.budgets.number(budget),
            )
        )

    def lives(self, state: State) -> canonical.Masks:
        """Every life that something in this state names."""
        of_replica = self.replicas.lives
        a1, a2, a3 = self.stores.lives[state[0]]
        b1, b2, b3 = of_replica[state[1]]
        c1, c2, c3 = of_replica[state[2]]
        d1, d2, d3 = of_replica[state[3]]
        e1, e2, e3 = self.messages.lives[state[4]]
        return a1 | b1 | c1 | d1 | e1, a2 | b2 | c2 | d2 | e2, a3 | b3 | c3 | d3 | e3

    def canonical(self, state: State) -> State:
        """The state with its lives numbered anew."""
        masks = self.lives(state)
        to = self._renamings.get(masks)
        if to is None:
            to = self._renamings[masks] = len(self._tables)
            self._tables.append(
                (
                    canonical.renaming(masks[0]),
                    canonical.renaming(masks[1]),
                    canonical.renaming(masks[2]),
                )
            )
        store, r1, r2, r3, messages, ghost, budget = state
        replicas = self._renamed_replicas
        try:
            return (
                self._renamed_stores[store, to],
                replicas[r1, to],
                replicas[r2, to],
                replicas[r3, to],
                self._renamed_messages[messages, to],
                self._renamed_ghosts[ghost, to],
                budget,
            )
        except KeyError:
            self._rename(state, to)
            return self.canonical(state)

    def _rename(self, state: State, to: int) -> None:
        table = self._tables[to]
        store, *replicas, messages, ghost, _ = state
        self._renamed_stores[store, to] = self.stores.number(
            canonical.rename_store(self.stores.values[store], table)
        )
        for replica in replicas[:3]:
            self._renamed_replicas[replica, to] = self.replicas.number(
                canonical.rename_replica(self.replicas.values[replica], table)
            )
        self._renamed_messages[messages, to] = self.messages.number(
            canonical.rename_messages(self.messages.values[messages], table)
        )
        self._renamed_ghosts[ghost, to] = self.ghosts.number(
            canonical.rename_ghost(self.ghosts.values[ghost], table)
        )
