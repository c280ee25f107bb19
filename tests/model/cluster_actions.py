"""Every step of processes, machines and the store: crashes, registrations, elections, damage."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.model import NO_EPOCH

from . import controller_guards, replica_steps, writes
from .broker_actions import BrokerActions, Label, Step, put
from .scenarios import Scenario
from .steps import Steps
from .values import (
    BROKERS,
    FIRST_TOPIC,
    FOUND,
    MIN_ISR,
    NEXT_INCARNATION,
    NOT_SYNCED,
    TARGETS,
    UNTIL_ADMITTED,
    ElectionWrite,
    Form,
    Registered,
    Replica,
    RequestedTarget,
    Store,
    Value,
)
from .world import GHOST, MESSAGES, STORE, State, World
from .writes import broken_by_giving_up, broken_by_write


class ClusterActions:
    def __init__(
        self, world: World, scenario: Scenario, steps: Steps, brokers: BrokerActions
    ) -> None:
        self.world = world
        self.scenario = scenario
        self._steps = steps
        self._brokers = brokers

    def all(self, state: State) -> Iterator[Step]:
        store = self.world.stores.values[state[STORE]]
        for broker in BROKERS:
            replica = self.world.replicas.values[state[broker]]
            registered = store.registered[broker - 1]
            if replica.up:
                yield from self._process_ends(state, replica, registered)
                if replica.damaged:
                    yield from self._repairs(state, replica)
            else:
                started = self._steps.started(state[broker])
                yield self._brokers.changed(state, ("starts", broker), broker, started)
            yield from self._registrations(state, replica, registered)
            yield from self._directories(state, replica)
        if store.seen is not None:
            yield from self._learns(state)
        yield from self._elections(state)
        if self.scenario.has_topics:
            yield from self._topics(state, store)

    def _learns(self, state: State) -> Iterator[Step]:
        for label, learned in (
            ("the controller learns who is registered", self._steps.seen(state[STORE])),
            ("leaders learn who is registered", self._steps.noticed(state[STORE])),
        ):
            if learned != state[STORE]:
                yield self._step((label,), put(state, STORE, learned))

    def _step(self, label: Label, state: State) -> Step:
        return Step(label, self.world.canonical(state), None)

    # -- processes and machines ------------------------------------------------------------

    def _process_ends(
        self, state: State, replica: Replica, registered: Registered | None
    ) -> Iterator[Step]:
        broker = replica.broker
        paid = self._brokers.pay(state, "crash")
        if paid is not None:
            yield self._step(("crashes", broker), self._end(paid, broker))
        paid = self._brokers.pay(state, "reboot")
        if paid is not None:
            # What was synced remains; of a synced topic nothing else ever counted.
            for kept in range(max(replica.flushed, 0), len(replica.log) + 1):
                lost = self._end(paid, broker, self._steps.rebooted(state[broker], kept))
                if replica.flushed == NOT_SYNCED:
                    lost = put(
                        lost, GHOST, self._steps.sound(lost[GHOST], broker, NEXT_INCARNATION)
                    )
                yield self._step(("reboots", broker, kept), lost)
        paid = self._brokers.pay(state, "damage")
        if paid is not None and not replica.damaged:
            damaged = self._steps.suspended(state[broker])
            yield self._brokers.changed(paid, ("finds damage", broker), broker, damaged)
        if (
            registered is not None
            and registered.incarnation == replica.own
            and not registered.running
        ):
            gone = self._steps.registered(state[STORE], broker, None)
            yield self._step(("has stopped", broker), put(self._end(state, broker), STORE, gone))

    def _end(self, state: State, broker: int, replica: int | None = None) -> State:
        dead = self._steps.ended(state[broker]) if replica is None else replica
        messages = self._steps.without_answers(state[MESSAGES], broker)
        dead = self._steps.quiescent(dead, messages)
        return put(put(state, broker, dead), MESSAGES, messages)

    # -- data directories ------------------------------------------------------------------

    def _directories(self, state: State, replica: Replica) -> Iterator[Step]:
        """Yields copies of a directory, and other directories that take the broker's id.

        Each costs a fault. That the process on one disk ends and another starts on the other is
        free.
        """
        broker = replica.broker
        if replica.spare is not None:
            swapped = self._end(state, broker, self._steps.swapped(state[broker]))
            yield self._step(("runs on its other disk", broker), self._lost(swapped, broker))
            return
        paid = self._brokers.pay(state, "directory")
        if paid is not None:
            replaced = self._end(paid, broker, self._steps.replaced(state[broker]))
            yield self._step(("has an empty directory", broker), self._lost(replaced, broker))
        paid = self._brokers.pay(state, "copy")
        if paid is not None:
            copied = put(paid, broker, self._steps.copied(state[broker]))
            yield self._step(("has its directory copied", broker), copied)

    def _lost(self, state: State, broker: int) -> State:
        """Notes that the present disk may lack what was acknowledged under its broker's id."""
        return put(state, GHOST, self._steps.sound(state[GHOST], broker, NEXT_INCARNATION))

    # -- registrations ---------------------------------------------------------------------

    def _registrations(
        self, state: State, replica: Replica, registered: Registered | None
    ) -> Iterator[Step]:
        broker = replica.broker
        if registered is None:
            # A damaged replica resigns before its broker registers.
            if replica.up and not replica.damaged:
                aware = register(self.world, self._steps, state, broker)
                yield self._step(("registers", broker), aware)
                if "registration" in self.scenario.late:
                    incarnation = self.world.replicas.values[aware[broker]].own
                    unaware = put(
                        aware, broker, self._steps.registering(state[broker], incarnation)
                    )
                    yield self._step(("registers without an answer", broker), unaware)
            return
        if replica.up and replica.registering == registered.incarnation:
            aware = put(state, broker, self._steps.joined(state[broker], replica.registering))
            yield self._step(("learns that it is registered", broker), aware)
        gone = self._steps.registered(state[STORE], broker, None)
        if not replica.up or replica.own != registered.incarnation:
            # The lease expires, the controller sees the crash, or the next incarnation removes it;
            # or the same incarnation does, which does not know that it has registered.
            after = put(put(state, STORE, gone), broker, self._steps.registering(state[broker], 0))
            yield self._step(("former registration goes", broker), after)
            return
        paid = self._brokers.pay(state, "lease")
        if paid is not None:
            yield self._step(("loses its lease", broker), put(paid, STORE, gone))
        paid = self._brokers.pay(state, "stop")
        if paid is not None and registered.running:
            stopping = registered._replace(running=False)
            store = self._steps.registered(state[STORE], broker, stopping)
            yield self._step(("is stopping", broker), put(paid, STORE, store))

    # -- elections -------------------------------------------------------------------------

    def _elections(self, state: State) -> Iterator[Step]:
        paid = self._brokers.pay(state, "controller")
        if paid is not None:
            store = self.world.stores.values[state[STORE]]
            later = self.world.stores.number(
                store._replace(
                    controller_epoch=store.controller_epoch + 1,
                    acknowledged=(),
                    seen=store.seen and store.registered,
                )
            )
            # Messages that the guards reject from now on might as well have been lost.
            messages = self._steps.takeable(state[MESSAGES], store.controller_epoch + 1)
            after = put(put(paid, STORE, later), MESSAGES, messages)
            yield self._step(("another controller is elected",), after)
        new = self._steps.decide(*state[:MESSAGES])
        if new is not None and new.epoch < self.scenario.epochs:
            yield self._written(state, new, "the controller writes")
            if "election" in self.scenario.late:
                yield from self._sent(state, new)
        if not state[MESSAGES]:
            return
        controller_epoch = self.world.stores.values[state[STORE]].controller_epoch
        for index, message in enumerate(self.world.messages.values[state[MESSAGES]]):
            if isinstance(message, ElectionWrite) and self._steps.is_taken(
                message.controller_epoch, controller_epoch
            ):
                without = put(state, MESSAGES, self._steps.without(state[MESSAGES], index))
                step = self._written(without, message.value, "late, the store takes")
                broken = (
                    controller_guards.broken_by(message.controller_epoch, controller_epoch)
                    or step.broken
                )
                yield step._replace(broken=broken)

    def _sent(self, state: State, new: Value) -> Iterator[Step]:
        """Yields late decisions. A deposed controller decides like the present one."""
        present = self.world.stores.values[state[STORE]].controller_epoch
        for controller_epoch in range(present + 1):
            if self._steps.is_taken(controller_epoch, present):
                words = (
                    "a deposed controller sends"
                    if controller_epoch < present
                    else "the controller sends"
                )
                sent = ElectionWrite("election", new, controller_epoch)
                yield from self._brokers.sent(state, (words, *described(new)), sent)

    def _written(self, state: State, new: Value, words: str) -> Step:
        store = self.world.stores.values[state[STORE]]
        sound = self.world.ghosts.values[state[GHOST]].sound
        broken = broken_by_write(store, new) or broken_by_giving_up(store, new, sound)
        after = self._steps.write(state, new)
        return Step((words, *described(new)), self.world.canonical(after), broken)

    # -- topics ----------------------------------------------------------------------------

    def _topics(self, state: State, store: Store) -> Iterator[Step]:
        value = store.value
        paid = self._brokers.pay(state, "delete")
        if paid is not None and not store.deleting and value.topic == FIRST_TOPIC:
            deleting = put(paid, STORE, self._steps.deleting(state[STORE]))
            yield self._step(("is to be deleted",), deleting)
        yield from self._operations(state, store)
        paid = self._brokers.pay(state, "move")
        if paid is None or store.deleting:
            return
        epochs = self.scenario.epochs
        for broker in BROKERS:
            rest = tuple(member for member in value.isr if member[0] != broker)
            if broker != value.leader and len(rest) >= MIN_ISR and value.epoch + 1 < epochs:
                yield from self._moves(paid, broker, value._replace(isr=rest))

    def _operations(self, state: State, store: Store) -> Iterator[Step]:
        """Yields operations that give the partition other replicas, and their cancellations.

        An operation follows another one only when that is done.
        """
        paid = self._brokers.pay(state, "reassign")
        value, requested = store.value, store.requested
        if paid is None or store.deleting or value.epoch == NO_EPOCH:
            return
        if requested is not None and not requested.cancelled and value.target:
            taken_back = self._steps.requesting(state[STORE], requested._replace(cancelled=True))
            yield self._step(("is not to be moved any more",), put(paid, STORE, taken_back))
        if value.target or (requested is not None and value.replicas != requested.target):
            return
        for target in TARGETS:
            if target != value.replicas:
                moved = self._steps.requesting(
                    state[STORE], RequestedTarget(target, cancelled=False)
                )
                label = ("is to be moved", "-".join(map(str, target)))
                yield self._step(label, put(paid, STORE, moved))

    def _moves(self, state: State, broker: int, without: Value) -> Iterator[Step]:
        """Assigns a replica to another broker and back.

        The StopReplica in between is in flight, and perhaps arrives twice.
        """
        between = self._steps.write(state, without)
        stop = self._steps.command(broker, between[STORE], Form.STOP)
        if stop is None:
            return
        updated = self._steps.commanded_late(between[broker], stop)
        for label, stopped in (("is moved away and back", between[broker]), ("is moved", updated)):
            for sent in self._brokers.sent(put(between, broker, stopped), (label, broker), stop):
                back = self._steps.write(sent.state, writes.assigned_again(without))
                yield self._step(sent.label, back)

    # -- damage ----------------------------------------------------------------------------

    def _repairs(self, state: State, replica: Replica) -> Iterator[Step]:
        """Yields repairs: a damaged replica is cut only after it has resigned."""
        broker = replica.broker
        if replica.damaged == FOUND:
            resigned = self._steps.resigned(state[STORE], broker)
            broken = None
            if resigned is not None:
                broken = broken_by_write(self.world.stores.values[state[STORE]], resigned)
                state = self._steps.write(state, resigned)
            after = put(state, broker, self._steps.has_resigned(state[broker]))
            yield Step(("resigns", broker), self.world.canonical(after), broken)
            return
        for kept in range(len(replica.log) + 1):
            after = put(state, broker, self._steps.resumed(state[broker], kept))
            after = put(after, GHOST, self._steps.sound(after[GHOST], broker, UNTIL_ADMITTED))
            yield self._step(("is cut and repaired", broker, kept), after)


def register(world: World, steps: Steps, state: State, broker: int) -> State:
    """Returns the state, not canonical yet, after a registration in a new incarnation."""
    incarnation = max(world.incarnations(state)[broker - 1], 1).bit_length()
    whole = replica_steps.intact_since(world.replicas.values[state[broker]]) or incarnation
    store = steps.registered(state[STORE], broker, Registered(incarnation, True, whole))
    after = put(put(state, STORE, store), broker, steps.joined(state[broker], incarnation))
    if world.ghosts.values[state[GHOST]].sound[broker - 1] == NEXT_INCARNATION:
        after = put(after, GHOST, steps.sound(state[GHOST], broker, incarnation))
    return after


def described(value: Value) -> Label:
    return (value.leader, value.epoch, *(b for b, _ in value.isr))
