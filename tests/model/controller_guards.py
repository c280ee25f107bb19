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


def is_taken(controller_epoch: int, present_epoch: int) -> bool:
    """Whether the store accepts a write of the controller of term `controller_epoch`.

    The write names the present revision of the partition's key; another controller may be
    active.
    """
    identity = ControllerIdentity(0, 0, _created(controller_epoch))
    write = PartitionWrite(PARTITION, None, _WRITTEN, PRESENT)
    transaction = Transactions(KEYS, identity).begin(PartitionBatch((write,), None)).transaction
    held = {
        KEYS.controller: (_created(present_epoch), _created(present_epoch)),
        KEYS.leader_and_isr(PARTITION): (PRESENT, PRESENT),
    }
    return all(
        guard.revision == held[guard.key][0 if isinstance(guard, CreateRevision) else 1]
        for guard in transaction.guards
    )


def broken_by(controller_epoch: int, present_epoch: int) -> str | None:
    return None if controller_epoch == present_epoch else NO_DEPOSED_WRITE


def _created(controller_epoch: int) -> int:
    """Returns the creation revision of the `controller` key."""
    return controller_epoch + 1
