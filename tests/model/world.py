"""States as tuples of seven small numbers, each the number of one interned part.

Steps are cached by the numbers of their parts: however many states there are, production code
runs once for each pair of a replica and an event.
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

# Numbers of the store, replicas 1 to 3, messages, ghost and budget.
State = tuple[int, int, int, int, int, int, int]
STORE, MESSAGES, GHOST, BUDGET = 0, 4, 5, 6


class Parts(Generic[T]):
    """Values and their numbers."""

    def __init__(self, incarnations: Callable[[T], canonical.Masks]) -> None:
        self.values: list[T] = []
        self.incarnations: list[int] = []  # incarnations that each value names, as `packed`
        self._incarnations_of = incarnations
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
            self.incarnations.append(packed(self._incarnations_of(value)))
        return number


class Expanded(NamedTuple):
    """A state with its values instead of numbers."""

    store: Store
    replicas: tuple[Replica, Replica, Replica]
    messages: tuple[Message, ...]
    ghost: Ghost
    budget: Budget


# More than NEXT_INCARNATION and UNTIL_ADMITTED.
BITS_PER_BROKER = 16


def packed(masks: canonical.Masks) -> int:
    """Packs three masks into one number."""
    return masks[0] | masks[1] << BITS_PER_BROKER | masks[2] << 2 * BITS_PER_BROKER


def unpacked(incarnations: int) -> canonical.Masks:
    one = (1 << BITS_PER_BROKER) - 1
    return (
        incarnations & one,
        incarnations >> BITS_PER_BROKER & one,
        incarnations >> 2 * BITS_PER_BROKER,
    )


class Renamed(NamedTuple):
    """The result of one renaming for each part, by its number."""

    table: canonical.Renaming
    stores: dict[int, int]
    replicas: dict[int, int]
    messages: dict[int, int]
    ghosts: dict[int, int]


def _names_none(_: object) -> canonical.Masks:
    return 0, 0, 0


class World:
    """The interned parts of one exploration.

    Its numbers hold for that exploration alone, since cached results are those of the
    production functions during it.
    """

    def __init__(self) -> None:
        self.stores = Parts[Store](canonical.of_store)
        self.replicas = Parts[Replica](canonical.of_replica)
        self.messages = Parts[tuple[Message, ...]](canonical.of_messages)
        self.messages.number(())  # 0: nothing is in flight
        self.ghosts = Parts[Ghost](_names_none)
        self.budgets = Parts[Budget](_names_none)
        self._renamed: dict[int, Renamed] = {}  # by the incarnations that a state names

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

    def incarnations(self, state: State) -> canonical.Masks:
        """Returns every incarnation that some part of this state names."""
        return unpacked(self._named(state))

    def _named(self, state: State) -> int:
        store, r1, r2, r3, messages, _, _ = state
        of_replica = self.replicas.incarnations
        return (
            self.stores.incarnations[store]
            | of_replica[r1]
            | of_replica[r2]
            | of_replica[r3]
            | self.messages.incarnations[messages]
        )

    def canonical(self, state: State) -> State:
        """Returns the state with renumbered incarnations."""
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
