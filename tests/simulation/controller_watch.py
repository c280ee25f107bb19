"""Checks that the active controller knows what the store holds, some seconds later at the latest.

A watch that omits a change would never catch up with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from simulation.lag_watch import store_is_reachable
from simulation.violation import Violation
from simulation.watch import watch
from tidelog_controller.shell.event_loop import EventLoop
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.keys import BrokerKey, ParsedKey, PartitionKey, TopicKey
from tidelog_runtime.metadata.store import KeyValue

if TYPE_CHECKING:
    from simulation.processes import ControllerProcess
    from simulation.world import World

INTERVAL_MS = 1_000
# Long enough to open a broken watch again and to read the store again.
KNOWN_WITHIN_MS = 6_000


class Held(NamedTuple):
    """The keys of the store at one moment, with their versions (`version_of`)."""

    time_ms: int
    revision: int
    versions: dict[str, int]


class ControllerWatch:
    def __init__(self, world: World) -> None:
        self._world = world
        # By controller: its present term, and since when it could follow the store.
        self._since: dict[int, tuple[object, int]] = {}
        # Snapshots of the store; the first is from KNOWN_WITHIN_MS ago.
        self._held: deque[Held] = deque()

    async def run(self) -> None:
        await watch(self._world, self.look, INTERVAL_MS)

    def look(self) -> None:
        """Takes a snapshot and checks the controllers. Raises `Violation`."""
        now_ms = self._world.now_ms
        snapshot = self._world.store_data.snapshot(self._world.keys.root)
        items = snapshot.items
        held = {key: version_of(item, self._world.keys.parse(key)) for key, item in items.items()}
        self._held.append(Held(now_ms, snapshot.revision, held))
        while len(self._held) > 1 and self._held[1].time_ms <= now_ms - KNOWN_WITHIN_MS:
            self._held.popleft()
        for controller in self._world.controllers.values():
            term = self._term_of(controller)
            before, since_ms = self._since.get(controller.controller_id, (None, now_ms))
            if term is None or term is not before:
                self._since[controller.controller_id] = (term, now_ms)
            elif now_ms - since_ms >= KNOWN_WITHIN_MS:
                self._judge(controller, term.context, items)

    def _term_of(self, controller: ControllerProcess) -> EventLoop | None:
        """Returns the term of a controller that is active and can follow the store now."""
        service = controller.service
        term = service.term if service is not None else None
        if term is None or not term.is_loaded:
            return None
        can_follow = store_is_reachable(self._world, controller)
        return term if can_follow and self._world.etcd.serves_watches(controller.host) else None

    def _judge(
        self, controller: ControllerProcess, context: Context, items: Mapping[str, KeyValue]
    ) -> None:
        """Checks keys that have not changed for long enough."""
        then = self._held[0].versions
        for key in sorted({*then, *items}):
            parsed = self._world.keys.parse(key)
            now = version_of(items[key], parsed) if key in items else 0
            if now != then.get(key, 0):
                continue
            known = known_version(context, parsed)
            if known is not None and known != now:
                raise Violation(
                    "controller_missed_change",
                    f"controller {controller.controller_id} knows {key} of revision {known}, the "
                    f"store has had that of {now} for {KNOWN_WITHIN_MS} ms",
                )
        self._judge_gone(controller, context, items)

    def _judge_gone(
        self, controller: ControllerProcess, context: Context, items: Mapping[str, KeyValue]
    ) -> None:
        """Checks keys that the store lacks.

        A key that existed meanwhile is exempt: the controller knows it by a later revision.
        """
        then = self._held[0]
        keys = self._world.keys
        known = [
            *(keys.topic(topic) for topic in context.topics),
            *(keys.broker(broker_id) for broker_id in context.brokers),
        ]
        for topic in context.topics:
            known += [keys.leader_and_isr(p) for p in context.partitions_of(topic)]
        for key in known:
            version = known_version(context, keys.parse(key)) or 0
            if key not in then.versions and key not in items and version <= then.revision:
                raise Violation(
                    "controller_missed_change",
                    f"controller {controller.controller_id} knows {key}, which the store has not "
                    f"had for {KNOWN_WITHIN_MS} ms",
                )


def version_of(item: KeyValue, key: ParsedKey | None) -> int:
    """Returns the revision of the key's last change; for a broker, that of its registration."""
    return item.create_revision if isinstance(key, BrokerKey) else item.mod_revision


def known_version(context: Context, key: ParsedKey | None) -> int | None:
    """Returns the version that a controller knows.

    It is 0 for an unknown broker, topic or partition, and None for a key that is not checked.
    """
    match key:
        case BrokerKey(broker_id):
            broker = context.brokers.get(broker_id)
            return broker.broker_epoch if broker is not None else 0
        case TopicKey(topic):
            known = context.topics.get(topic)
            return known.revision if known is not None else 0
        case PartitionKey(partition):
            held = context.partition(partition)
            return held.revision if held is not None else 0
        case _:
            return None
