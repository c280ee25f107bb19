"""Warnings about changes after which records may be lost or found elsewhere, the same in every
interface. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tidelog.inspection.unprotected_topics import UNPROTECTED, creation_warning, is_unprotected
from tidelog.phrases import plural
from tidelog.units import setting_argument

if TYPE_CHECKING:
    from tidelog.admin_messages import ConfigChange

_UNLIMITED = -1
_OTHER_PARTITIONS = "Records with a key go to other partitions from then on"


def of_creation(topic: str, replication_factor: int, brokers: int) -> Iterator[str]:
    """`brokers`: how many the cluster has."""
    if is_unprotected(replication_factor):
        yield creation_warning(topic, brokers)


def of_replication_factor(topics: Sequence[str], replication_factor: int) -> Iterator[str]:
    if is_unprotected(replication_factor):
        yield (
            f"With one replica {', '.join(topics)} would be {UNPROTECTED}: the records of a "
            "partition are lost with the disk of its broker."
        )


def of_added_partitions(count: int) -> Iterator[str]:
    """`count`: how many partitions are added."""
    if count:
        yield f"{_OTHER_PARTITIONS}, and partitions can only be removed with their records."


def of_removed_partitions(count: int, brokers: Iterable[int]) -> Iterator[str]:
    """`brokers`: those that hold the partitions; empty if they are not known."""
    if count:
        where = ",".join(map(str, brokers))
        on_brokers = f" (on brokers {where})" if where else ""
        yield (
            f"{plural(count, 'partition')}{on_brokers} and all their records will be deleted for "
            "good."
        )
        yield f"{_OTHER_PARTITIONS}."


def of_config(changes: Iterable[ConfigChange]) -> Iterator[str]:
    """Yields a sentence for each change by which records may be lost."""
    for change in changes:
        before, after = change.before, change.after
        match change.key:
            case "retention_ms" | "retention_bytes" if _is_less(before, after):
                limit = setting_argument(change.key, after)
                yield f"Records beyond {limit} will be deleted for good, shortly."
            case "min_insync_replicas" if _min_isr(after) < _min_isr(before):
                yield (
                    f"With min_insync_replicas={after or 'its default'} records may count as "
                    "acknowledged that fewer replicas hold than before."
                )
            case "unclean_leader_election" if after == "true":
                yield (
                    "A replica that lacks acknowledged records may be elected from now on, while "
                    "no replica in sync is available: these records are lost then."
                )
            case "durability" if after == "replicated":
                yield (
                    "Records are acknowledged from now on before they are synced to disk: a power "
                    "failure of all their replicas at once may lose them."
                )
            case "recovery" if after == "balanced":
                yield (
                    "If every replica that was in sync has lost data, the best of them is elected "
                    "without consent."
                )


def _min_isr(text: str) -> int:
    """The default is min(2, replication factor)."""
    return int(text or 2)


def _is_less(before: str, after: str) -> bool:
    """Whether less is retained than before."""
    if int(after) == _UNLIMITED:
        return False
    return int(before) == _UNLIMITED or int(after) < int(before)
