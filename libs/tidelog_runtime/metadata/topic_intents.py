"""Intents to delete a topic, and to add or remove its partitions.

They are values of the metadata store ("Metadata" in docs/internals/protocol.md) and are kept
until they are carried out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tidelog_runtime.metadata.broker_directories import known_fields


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """Value of `admin/topics_delete/<topic>`."""

    topic_id: str
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class PartitionsAddition:
    """Value of `admin/partitions_add/<topic>`: partitions from `first` on get their replicas.

    - `assignment`: the chosen replicas of each; empty: the controller places them.
    """

    topic_id: str
    first: int
    assignment: tuple[tuple[int, ...], ...] = ()
    trace_id: str = ""

    def replicas_of(self, partition: int) -> tuple[int, ...]:
        """Returns the chosen replicas of the partition; empty: none were chosen."""
        number = partition - self.first
        return self.assignment[number] if 0 <= number < len(self.assignment) else ()


@dataclass(frozen=True, slots=True)
class PartitionsRemoval:
    """Value of `admin/partitions_remove/<topic>`: partitions from `first` on are deleted.

    Their data is deleted, too. The topic's own key does not count them any more.
    """

    topic_id: str
    first: int
    trace_id: str = ""


def encode_intent(value: TopicDeletion | PartitionsAddition | PartitionsRemoval) -> bytes:
    return json.dumps(asdict(value), separators=(",", ":")).encode()


def decode_topic_deletion(value: bytes) -> TopicDeletion:
    return TopicDeletion(**known_fields(TopicDeletion, json.loads(value)))


def decode_partitions_addition(value: bytes) -> PartitionsAddition:
    raw = json.loads(value)
    assignment = tuple(tuple(replicas) for replicas in raw["assignment"])
    return PartitionsAddition(**{**raw, "assignment": assignment})


def decode_partitions_removal(value: bytes) -> PartitionsRemoval:
    return PartitionsRemoval(**json.loads(value))
