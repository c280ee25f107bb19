"""Partitions that an event touched, where they are many: a part of them is taken in each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from tidelog.model import TopicPartition
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.store import MAX_TRANSACTION_CHANGES

# As many as are judged for one batch.
MAX_TAKEN_PER_STEP = 2 * MAX_TRANSACTION_CHANGES
# To pass over one that another broker leads takes less than a microsecond.
MAX_SEEN_PER_STEP = 10 * MAX_TAKEN_PER_STEP

_Named = TypeVar("_Named")


class _Source(NamedTuple):
    """Whose partitions: of a topic, by number, or by name where it is None. `leader`: those
    alone that it leads when they are taken; the others were touched when it ceased to."""

    topic: str | None = None
    leader: int | None = None


class LazyTouches:
    """What is touched again before it was taken is taken once. Those that have waited go first,
    so that however often a topic is touched, its last partitions get their turn. Sources take
    turns: a small topic does not wait for a large one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._numbers: dict[_Source, deque[int]] = {}
        self._names: dict[_Source, deque[TopicPartition]] = {}
        self._sources: dict[_Source, None] = {}  # in the order of their turns

    def __bool__(self) -> bool:
        return bool(self._sources)

    def add_numbers(self, topic: str, numbers: Iterable[int]) -> None:
        source = _Source(topic)
        former = self._numbers.get(source, ())
        self._add(source, self._numbers, deque(dict.fromkeys((*former, *numbers))))

    def add_led_by(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        """Those of them that the broker leads."""
        self._add_names(_Source(None, broker_id), names)

    def add(self, names: Iterable[TopicPartition]) -> None:
        self._add_names(_Source(), names)

    def take(self) -> list[TopicPartition]:
        taken: list[TopicPartition] = []
        room = MAX_SEEN_PER_STEP
        while self._sources and room and len(taken) < MAX_TAKEN_PER_STEP:
            source = next(iter(self._sources))
            room -= 1
            name = self._next(source)
            if source.leader is None or self._leads(source.leader, name):
                taken.append(name)
        return taken

    def _next(self, source: _Source) -> TopicPartition:
        del self._sources[source]
        if source.topic is not None:
            numbers = self._numbers[source]
            name, is_last = TopicPartition(source.topic, numbers.popleft()), not numbers
        else:
            names = self._names[source]
            name, is_last = names.popleft(), not names
        if is_last:
            self._numbers.pop(source, None)
            self._names.pop(source, None)
        else:
            self._sources[source] = None
        return name

    def _leads(self, broker_id: int, name: TopicPartition) -> bool:
        held = self._context.partition(name)
        return held is not None and held.state.leader == broker_id

    def _add_names(self, source: _Source, names: Iterable[TopicPartition]) -> None:
        former = self._names.get(source, ())
        self._add(source, self._names, deque(dict.fromkeys((*former, *names))))

    def _add(
        self, source: _Source, waiting: dict[_Source, deque[_Named]], names: deque[_Named]
    ) -> None:
        if names:
            waiting[source] = names
            self._sources[source] = None
