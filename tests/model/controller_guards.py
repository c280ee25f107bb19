"""Whether the store accepts a controller's transaction, by the guards that production sets.

It also has the invariant of an accepted transaction.
"""

from __future__ import annotations

from tidelog.model import TopicPartition
from tidelog_controller.state.context import ControllerIdentity
from tidelog_controller.state.mutations import PartitionBatch, PartitionWrite
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.store import CreateRevision

from .values import PRESENT, UNLED, to_production

KEYS = Keys("model")
PARTITION = TopicPartition("model", 0)
NO_DEPOSED_WRITE = "a deposed controller writes nothing"
# What is written does not matter to the guards.
_WRITTEN = to_production(UNLED)


def is_taken(reign: int, present_reign: int) -> bool:
    """Whether the store accepts a write of the controller of term `reign`.

    The write names the present revision of the partition's key; another controller may be
    active.
    """
    identity = ControllerIdentity(0, 0, _created(reign))
    write = PartitionWrite(PARTITION, None, _WRITTEN, PRESENT)
    transaction = Transactions(KEYS, identity).begin(PartitionBatch((write,), None)).transaction
    held = {
        KEYS.controller: (_created(present_reign), _created(present_reign)),
        KEYS.leader_and_isr(PARTITION): (PRESENT, PRESENT),
    }
    return all(
        guard.revision == held[guard.key][0 if isinstance(guard, CreateRevision) else 1]
        for guard in transaction.guards
    )


def broken_by(reign: int, present_reign: int) -> str | None:
    return None if reign == present_reign else NO_DEPOSED_WRITE


def _created(reign: int) -> int:
    """Returns the creation revision of the `controller` key."""
    return reign + 1
