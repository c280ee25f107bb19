"""Topics with a single replica of each partition. Their records are lost with one disk, and cannot
be read while one broker is down. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidelog.state_changes.topic import is_internal

# The word that every interface shows for such a topic.
UNPROTECTED = "unprotected"
# The replication factor that protects a topic while one broker restarts and another one fails.
PROTECTING_FACTOR = 3


class Replicated(Protocol):
    """A topic of any interface, such as `TopicDescription`."""

    @property
    def name(self) -> str: ...

    @property
    def replication_factor(self) -> int: ...


def is_unprotected(replication_factor: int) -> bool:
    return replication_factor == 1


def unprotected_topics(topics: Iterable[Replicated]) -> list[str]:
    """Returns the names of unprotected topics, ordered. The factor of an internal topic is a
    setting of the controllers, so these are left out."""
    return sorted(
        topic.name
        for topic in topics
        if is_unprotected(topic.replication_factor) and not is_internal(topic.name)
    )


def factor_text(replication_factor: int) -> str:
    """
    >>> factor_text(3), factor_text(1)
    ('3', '1 (unprotected)')
    """
    mark = f" ({UNPROTECTED})" if is_unprotected(replication_factor) else ""
    return f"{replication_factor:,}{mark}"


def to_protect(topics: Iterable[str], brokers: int) -> str:
    """Returns the next step for unprotected topics. `brokers`: how many the cluster has.

    >>> to_protect(["sea", "bay"], brokers=2)
    'tidelog topics set-replication-factor sea bay -r 2'
    >>> to_protect(["sea"], brokers=1).partition(", then: ")[0]
    'start more brokers and add them (tidelog brokers add)'
    """
    # On a single broker no higher factor is possible until others have joined.
    first = "" if brokers > 1 else "start more brokers and add them (tidelog brokers add), then: "
    factor = min(PROTECTING_FACTOR, brokers) if brokers > 1 else PROTECTING_FACTOR
    return f"{first}tidelog topics set-replication-factor {' '.join(topics)} -r {factor}"


def creation_warning(topic: str, brokers: int) -> str:
    """Returns the warning for a topic that is created with a single replica. `brokers`: how many
    the cluster has; on a single one every topic is unprotected."""
    why = "the cluster has one broker, so " if brokers == 1 else ""
    return (
        f"Topic {topic} is {UNPROTECTED}: {why}each partition has a single replica, and "
        f"its records are lost with the disk of that broker. To protect it: "
        f"{to_protect([topic], brokers)}"
    )
