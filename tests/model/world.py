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
        self.lives: list[int] = []  # lives that each value names, as `packed`
        self._lives_of = lives
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
            self.lives.append(packed(self._lives_of(value)))
        return number


class Expanded(NamedTuple):
    """A state that can be read."""

    store: Store
    replicas: tuple[Replica, Replica, Replica]
    messages: tuple[Message, ...]
    ghost: Ghost
    budget: Budget


# Above NEXT_LIFE and UNTIL_ADMITTED.
BITS_PER_BROKER = 16


def packed(masks: canonical.Masks) -> int:
    """One number for three masks."""
    return masks[0] | masks[1] << BITS_PER_BROKER | masks[2] << 2 * BITS_PER_BROKER


def unpacked(lives: int) -> canonical.Masks:
    one = (1 << BITS_PER_BROKER) - 1
    return lives & one, lives >> BITS_PER_BROKER & one, lives >> 2 * BITS_PER_BROKER


class Renamed(NamedTuple):
    """What one renaming makes of each part, by its number."""

    table: canonical.Renaming
    stores: dict[int, int]
    replicas: dict[int, int]
    messages: dict[int, int]
    ghosts: dict[int, int]


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
        self._renamed: dict[int, Renamed] = {}  # by the lives that a state names

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
        return unpacked(self._named(state))

    def _named(self, state: State) -> int:
        store, r1, r2, r3, messages, _, _ = state
        of_replica = self.replicas.lives
        return (
            self.stores.lives[store]
            | of_replica[r1]
            | of_replica[r2]
            | of_replica[r3]
            | self.messages.lives[messages]
        )

    def canonical(self, state: State) -> State:
        """The state with its lives numbered anew."""
        named = self._named(state)
        try:
            _, stores, replicas, messages, ghosts = self._renamed[named]
            return (
                stores[state[0]],
                replicas[state[1]],
                replicas[state[2]],
                replicas[state[3]],
                messages[state[4]],
                ghosts[state[5]],
                state[6],
            )
        except KeyError:
            self._rename(state, named)
            return self.canonical(state)

    def _rename(self, state: State, named: int) -> None:
        if named not in self._renamed:
            first, second, third = (canonical.renaming(mask) for mask in unpacked(named))
            self._renamed[named] = Renamed((first, second, third), {}, {}, {}, {})
        renamed = self._renamed[named]
        table = renamed.table
        store, *replicas, messages, ghost, _ = state
        renamed.stores[store] = self.stores.number(
            canonical.rename_store(self.stores.values[store], table)
        )
        for replica in replicas[:3]:
            renamed.replicas[replica] = self.replicas.number(
                canonical.rename_replica(self.replicas.values[replica], table)
            )
        renamed.messages[messages] = self.messages.number(
            canonical.rename_messages(self.messages.values[messages], table)
        )
        renamed.ghosts[ghost] = self.ghosts.number(
            canonical.rename_ghost(self.ghosts.values[ghost], table)
        )
