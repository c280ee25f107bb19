"""A history with as many topics as many clusters have, and with every kind of anomaly planted in
it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tidelog.history import UNREADABLE_VALUE, Operation
from unit.history.defects import DEFECTS
from unit.history.log_model import PARTITIONS, LogModel
from unit.history.test_random_histories import KINDS, LAST, RICH

TOPICS = 5
_VALUES_OF_ONE = 1 << 41


def planted_history(seed: int, count: int = len(DEFECTS)) -> list[Operation]:
    """Joins this many small histories, with one defect each, in rotation."""
    rng = random.Random(seed)
    histories = [iter(_small(rng, number)) for number in range(count)]
    operations = []
    while histories:
        history = rng.choice(histories)
        operation = next(history, None)
        if operation is None:
            histories.remove(history)
        else:
            operations.append(operation)
    return operations


def _small(rng: random.Random, number: int) -> Iterator[Operation]:
    steps = [
        (rng.choice(KINDS), rng.randrange(4), rng.randrange(8)) for _ in range(rng.randrange(40))
    ]
    history = LogModel().run([*steps, *RICH, *LAST]).operations
    planted = list(DEFECTS[number % len(DEFECTS)].plant(history))
    for operation in rng.choice(planted):
        yield _moved(operation, number)


def _moved(operation: Any, number: int) -> Operation:
    """The history with its own partitions and values."""
    fields: dict[str, Any] = {}
    if hasattr(operation, "topic"):
        fields["topic"] = f"sea{number % TOPICS}"
        if operation.partition >= 0:
            fields["partition"] = operation.partition + PARTITIONS * (number // TOPICS)
    if hasattr(operation, "value"):
        fields["value"] = operation.value + number * _VALUES_OF_ONE
    if hasattr(operation, "values"):
        fields["values"] = [
            value if value == UNREADABLE_VALUE else value + number * _VALUES_OF_ONE
            for value in operation.values
        ]
    moved: Operation = operation._replace(**fields)
    return moved
