"""Parses partitions, replicas, leaders and rates on the command line. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidelog.cli.exit_status import UsageError
from tidelog.cli.trace_targets import parse_number, parse_target
from tidelog.model import TopicPartition
from tidelog.units import parse_size_bytes

if TYPE_CHECKING:
    from tidelog.admin_messages import Move


def parse_ids(text: str, problem: str) -> tuple[int, ...]:
    """`problem`: the message for a text that is not a list of broker ids. Raises `UsageError`."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise UsageError(problem)
    return tuple(parse_number(word, "broker") for word in words)


def parse_move(text: str) -> Move:
    """Raises `UsageError`.

    >>> parse_move("sea/0=4,2").target
    (4, 2)
    """
    from tidelog.admin_messages import Move

    partition, ids = _divided(text, "TOPIC/PARTITION=BROKER,BROKER, as sea/0=4,2")
    return Move(partition.topic, partition.partition, ids)


def parse_leader(text: str) -> tuple[TopicPartition, int]:
    """Raises `UsageError`.

    >>> parse_leader("sea/3=2")
    (TopicPartition(topic='sea', partition=3), 2)
    """
    form = "TOPIC/PARTITION=BROKER, as sea/3=2"
    partition, ids = _divided(text, form)
    if len(ids) > 1:
        raise UsageError(f"{text!r} names {len(ids)} brokers; give one, in the form {form}")
    return partition, ids[0]


def parse_leaders(words: Sequence[str]) -> dict[TopicPartition, int]:
    """Parses leaders; each partition may occur once. Raises `UsageError`."""
    leaders: dict[TopicPartition, int] = {}
    for partition, leader in map(parse_leader, words):
        if partition in leaders:
            raise UsageError(
                f"{partition.topic}/{partition.partition} is named twice; name each partition once"
            )
        leaders[partition] = leader
    return leaders


def parse_selection(words: Iterable[str]) -> dict[str, list[int]]:
    """Returns partitions by topic; an empty list means all. Raises `UsageError`.

    >>> parse_selection(["sea/3", "bay", "sea/1"])
    {'sea': [1, 3], 'bay': []}
    """
    chosen: dict[str, set[int]] = {}
    whole: set[str] = set()
    for word in words:
        topic, partition, _ = parse_target(word)
        numbers = chosen.setdefault(topic, set())
        if partition is None:
            whole.add(topic)
        else:
            numbers.add(partition)
    return {topic: [] if topic in whole else sorted(numbers) for topic, numbers in chosen.items()}


def parse_assignment(text: str) -> list[tuple[int, ...]]:
    """Returns the replicas of each partition, in order. Raises `UsageError`.

    >>> parse_assignment("1,2:2,3")
    [(1, 2), (2, 3)]
    """
    problem = (
        f"--assignment {text!r} is not a list of replicas; give the broker ids of each partition, "
        "partitions divided by colons, as 1,2:2,3:3,1"
    )
    return [parse_ids(part, problem) for part in text.split(":")]


def assignment_text(assignment: Iterable[Sequence[int]]) -> str:
    """
    >>> assignment_text([(1, 2), (2, 3)])
    '1,2:2,3'
    """
    return ":".join(",".join(map(str, replicas)) for replicas in assignment)


def _divided(text: str, form: str) -> tuple[TopicPartition, tuple[int, ...]]:
    problem = f"{text!r} is not {form}"
    name, equals, rest = text.partition("=")
    topic, slash, number = name.strip().partition("/")
    if not (equals and slash and topic and number.isascii() and number.isdecimal()):
        raise UsageError(problem)
    ids = parse_ids(rest, problem)
    return TopicPartition(topic, parse_number(number, "partition")), ids


NONE = "none"
_A_SECOND = re.compile(r"\s*/s$", re.IGNORECASE)


def parse_rate(text: str) -> int | None:
    """Returns bytes per second, or None for no limit. Raises `UsageError`.

    >>> parse_rate("50MB"), parse_rate("1.5 MiB/s"), parse_rate("65536"), parse_rate("none")
    (50000000, 1572864, 65536, None)
    """
    stated = text.strip()
    if stated.lower() == NONE:
        return None
    try:
        return parse_size_bytes(_A_SECOND.sub("", stated))
    except ValueError as error:
        raise UsageError(f"{error}, per second; or {NONE} for no limit") from None
