"""Work that the shell runs off its event loop, run synchronously."""

from __future__ import annotations

from tidelog.errors import TidelogError
from tidelog_controller.state.commands import MakePlan, ReadSnapshot
from tidelog_controller.state.events import PlanMade, SnapshotRead


def plan_made(command: MakePlan) -> PlanMade:
    try:
        return PlanMade(command.id, command.make(), None)
    except TidelogError as error:
        return PlanMade(command.id, None, error)


def snapshot_read(command: ReadSnapshot) -> SnapshotRead:
    try:
        return SnapshotRead(command.id, command.read(), None)
    except TidelogError as error:
        return SnapshotRead(command.id, None, error)
