"""Large sets of touched partitions, of which each step takes a part."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from tidelog.model import TopicPartition
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.store import MAX_TRANSACTION_CHANGES

# As many as are decided for one batch.
MAX_TAKEN_PER_STEP = 2 * MAX_TRANSACTION_CHANGES
# To skip a partition that another broker leads takes less than a microsecond.
MAX_SEEN_PER_STEP = 10 * MAX_TAKEN_PER_STEP

_Named = TypeVar("_Named")


class _Source(NamedTuple):
    """The origin of touched partitions.

    - `topic`: partitions of this topic, held by number. None: partitions held by name.
    - `leader`: only partitions that this broker leads when they are taken. The others were touched
      when it ceased to lead them.
    """

    topic: str | None = None
    leader: int | None = None


class DeferredTouches:
    """Touched partitions that are not taken yet.

    A partition that is touched again before it is taken is taken once. The longest-waiting ones
    come first, so that all partitions of a topic get their turn however often it is touched.
    Sources take turns: a small topic does not wait for a large one.
    """

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
        """Adds those of the named partitions that the broker leads when they are taken."""
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
