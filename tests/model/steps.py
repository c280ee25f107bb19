"""Every step on the numbers of the parts that it reads, with a cache.

However many states there are, production code runs once for each pair of a replica and an
event.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog_broker.damage.resignations import resignation

from . import controller_guards, invariants, manager_steps, replica_steps, writes
from .controller_steps import Controller
from .joiner_guards import guard_holds, joiners_of
from .scenarios import Scenario
from .values import (
    BROKERS,
    NEVER,
    NOT_SYNCED,
    PRESENT,
    RESIGNED,
    Answer,
    Command,
    ElectionWrite,
    FetchRequest,
    FetchResponse,
    Form,
    Position,
    Registered,
    Replica,
    RequestedTarget,
    Value,
    from_production,
    is_stopped,
    to_production,
)
from .world import GHOST, MESSAGES, STORE, State, World


class Swap(NamedTuple):
    """The store's reaction to a leader's ISR change.

    - `value`: what is written, or None after a rejection
    - `refused`, `why`: the leader after the rejection, and the reason
    - `broken`: an invariant that the write breaks
    """

    value: Value | None
    refused: int
    why: str
    broken: str | None = None


class Steps:
    def __init__(self, world: World, controller: Controller, scenario: Scenario) -> None:
        self._has_topics = scenario.has_topics
        self._commands_are_prompt = not (self._has_topics or scenario.late & {"command", "stop"})
        self.world = world
        self._controller = controller
        self._replicas = world.replicas.values
        self._number = world.replicas.number
        # The methods below, each with a cache.
        self.position = cache(self._position)
        self.serve = cache(self._serve)
        self.follow = cache(self._follow)
        self.fetch = cache(self._fetch)
        self.append = cache(self._append)
        self.flush = cache(self._flush)
        self.commanded = cache(self._commanded)
        self.commanded_late = cache(self._commanded_late)
        self.observe = cache(self._observe)
        self.proposals = cache(self._proposals)
        self.swap = cache(self._swap)
        self.is_written = cache(self._is_written)
        self.ended = cache(self._ended)
        self.started = cache(self._started)
        self.rebooted = cache(self._rebooted)
        self.replaced = cache(self._replaced)
        self.copied = cache(self._copied)
        self.swapped = cache(self._swapped)
        self.suspended = cache(self._suspended)
        self.has_resigned = cache(self._has_resigned)
        self.resumed = cache(self._resumed)
        self.joined = cache(self._joined)
        self.registering = cache(self._registering)
        self.decide = cache(self._decide)
        self.resigned = cache(self._resigned)
        self.registered = cache(self._registered)
        self.valued = cache(self._valued)
        self.seen = cache(self._seen)
        self.noticed = cache(self._noticed)
        self.deleting = cache(self._deleting)
        self.requesting = cache(self._requesting)
        self.outdated = cache(self._outdated)
        self.quiescent = cache(self._quiescent)
        self.voided = cache(self._voided)
        self.is_taken = cache(controller_guards.is_taken)
        self.fences = cache(self._fences)
        self.unfenced = cache(self._unfenced)
        self.takeable = cache(self._takeable)
        self.without = cache(self._without)
        self.without_answers = cache(self._without_answers)
        self.sound = cache(self._sound)
        self.note = cache(self._note)
        self.after_write = cache(self._after_write)

    # -- following and leading -------------------------------------------------------------

    def _position(self, replica: int) -> Position | None:
        """Returns the position of the replica's next fetch, or None if it does not fetch."""
        r = self._replicas[replica]
        return replica_steps.fetch_position(r) if r.up and not r.damaged else None

    def _serve(
        self, leader: int, follower: int, incarnation: int, position: Position
    ) -> tuple[int, Answer | None]:
        served, answer = manager_steps.serve(
            self._replicas[leader], follower, incarnation, position
        )
        return self._number(served), answer

    def _follow(self, follower: int, position: Position, answer: Answer) -> int:
        return self._number(replica_steps.follow(self._replicas[follower], position, answer))

    def _fetch(self, follower: int, leader: int) -> tuple[int, int] | None:
        """Returns both after a fetch that is answered at once, or None if nothing changes."""
        position = self.position(follower)
        if position is None or not self._replicas[leader].up:
            return None
        r = self._replicas[follower]
        served, answer = self.serve(leader, r.broker, r.incarnation, position)
        updated = follower if answer is None else self.follow(follower, position, answer)
        return None if (updated, served) == (follower, leader) else (updated, served)

    def _append(self, replica: int, record: int) -> int:
        return self._number(replica_steps.append(self._replicas[replica], record))

    def _flush(self, replica: int, up_to: int) -> int:
        return self._number(replica_steps.flush(self._replicas[replica], up_to))

    def _observe(self, replica: int, store: int) -> int:
        value = self.world.stores.values[store].value
        return self._number(replica_steps.observe(self._replicas[replica], value))

    # -- commands --------------------------------------------------------------------------

    def forms(self, slot: int, store: int) -> tuple[Form, ...]:
        """Returns the forms of the present commands to a broker, the full state first."""
        value = self.world.stores.values[store].value
        if value.epoch == NO_EPOCH:
            return (Form.NOTHING,)
        stops = is_stopped(value) or slot not in value.replicas
        return (Form.NOTHING, Form.STOP) if stops else (Form.ALL, Form.ONE)

    def command(self, slot: int, store: int, form: Form) -> Command | None:
        """Returns the controller's present command to a registered broker."""
        held = self.world.stores.values[store]
        registered = (held.seen or held.registered)[slot - 1]
        if registered is None:
            return None
        kind = "stop" if form is Form.STOP else "command"
        return Command(
            kind, slot, registered.incarnation, held.value, PRESENT, held.controller_epoch, form
        )

    def _commanded(self, replica: int, store: int, form: Form) -> tuple[int, int]:
        """Returns the broker, and the store, after a command that is answered at once."""
        broker = self._replicas[replica].broker
        command = self.command(broker, store, form)
        if command is None:
            return replica, store
        updated, done = manager_steps.take(self._replicas[replica], command)
        held = self.world.stores.values[store]
        awaited = held.deleting and broker not in held.acknowledged
        if form is Form.STOP and done and awaited:
            acknowledged = tuple(sorted((*held.acknowledged, broker)))
            store = self.world.stores.number(held._replace(acknowledged=acknowledged))
        return self._number(updated), store

    def _commanded_late(self, replica: int, command: Command) -> int:
        return self._number(manager_steps.take(self._replicas[replica], command).replica)

    # -- the ISR ---------------------------------------------------------------------------

    def _proposals(self, replica: int, store: int) -> tuple[tuple[int, int], ...]:
        """Returns each follower that may be found to lag (0: none), and the leader then."""
        r = self._replicas[replica]
        assert r.value is not None
        held = self.world.stores.values[store]
        running = {
            b: registered.incarnation
            for b, registered in zip(BROKERS, held.noticed or held.registered, strict=True)
            if registered is not None and registered.running
        }
        found = []
        for lagging in (0, *(b for b, _ in r.value.isr if b != r.broker)):
            proposing = replica_steps.propose(r, running, lagging)
            if proposing is not None:
                found.append((lagging, self._number(proposing)))
        return tuple(found)

    def _swap(self, replica: int, store: int) -> Swap:
        r = self._replicas[replica]
        held = self.world.stores.values[store]
        assert r.value is not None
        assert r.leading is not None
        assert r.leading.proposed is not None
        if r.revision != PRESENT:
            return Swap(None, self.observe(replica, store), "the key has moved")
        if not guard_holds(held.registered, joiners_of(r.value, r.leading.proposed)):
            refused = self._number(replica_steps.isr_rejected(r))
            return Swap(None, refused, "a joiner's registration has changed")
        broken = writes.broken_by_joiners(held.registered, joiners_of(r.value, r.leading.proposed))
        return Swap(r.leading.proposed, replica, "", broken)

    def _is_written(self, replica: int) -> int:
        return self._number(replica_steps.isr_written(self._replicas[replica], PRESENT))

    # -- processes and disks ---------------------------------------------------------------

    def _ended(self, replica: int) -> int:
        return self._number(replica_steps.ended(self._replicas[replica]))

    def _started(self, replica: int) -> int:
        return self._number(replica_steps.started(self._replicas[replica]))

    def _rebooted(self, replica: int, kept: int) -> int:
        dead = replica_steps.ended(self._replicas[replica])
        synced = dead.flushed != NOT_SYNCED
        return self._number(
            dead._replace(
                rebooted=True, log=dead.log[:kept], flushed=kept if synced else NOT_SYNCED
            )
        )

    def _replaced(self, replica: int) -> int:
        return self._number(replica_steps.replaced(self._replicas[replica]))

    def _copied(self, replica: int) -> int:
        return self._number(replica_steps.copied(self._replicas[replica]))

    def _swapped(self, replica: int) -> int:
        return self._number(replica_steps.swapped(self._replicas[replica]))

    def _suspended(self, replica: int) -> int:
        return self._number(replica_steps.suspended(self._replicas[replica]))

    def _has_resigned(self, replica: int) -> int:
        return self._number(self._replicas[replica]._replace(damaged=RESIGNED))

    def _resumed(self, replica: int, kept: int) -> int:
        return self._number(replica_steps.resumed(self._replicas[replica], kept))

    def _joined(self, replica: int, incarnation: int) -> int:
        """Returns the process after its registration."""
        r = replica_steps.registered(self._replicas[replica])
        return self._number(
            r._replace(
                incarnation=incarnation,
                own=incarnation,
                registering=0,
                whole=r.whole or incarnation,
            )
        )

    def _registering(self, replica: int, incarnation: int) -> int:
        """Returns the process before it learns of its registration in `incarnation`, if any (0)."""
        return self._number(self._replicas[replica]._replace(registering=incarnation))

    # -- the store -------------------------------------------------------------------------

    def _decide(self, store: int, r1: int, r2: int, r3: int) -> Value | None:
        replicas = self._replicas
        return self._controller.decide(
            self.world.stores.values[store], (replicas[r1], replicas[r2], replicas[r3])
        )

    def _resigned(self, store: int, broker: int) -> Value | None:
        """Returns what a damaged replica writes, or None."""
        found = to_production(self.world.stores.values[store].value)
        written = resignation(found, found.topic_id, broker)
        return None if written is None else from_production(written)

    def _registered(self, store: int, broker: int, registered: Registered | None) -> int:
        held = self.world.stores.values[store]
        slots = list(held.registered)
        slots[broker - 1] = registered
        # A new incarnation has yet to acknowledge; a stopping one keeps its acknowledgement.
        old = held.registered[broker - 1]
        same = (
            old is not None and registered is not None and old.incarnation == registered.incarnation
        )
        return self.world.stores.number(
            held._replace(
                registered=(slots[0], slots[1], slots[2]),
                acknowledged=tuple(b for b in held.acknowledged if b != broker or same),
            )
        )

    def _seen(self, store: int) -> int:
        """Returns the store once the controller knows all registrations."""
        held = self.world.stores.values[store]
        return self.world.stores.number(held._replace(seen=held.seen and held.registered))

    def _noticed(self, store: int) -> int:
        """Returns the store once leaders know all registrations."""
        held = self.world.stores.values[store]
        return self.world.stores.number(held._replace(noticed=held.noticed and held.registered))

    def _valued(self, store: int, value: Value) -> int:
        held = self.world.stores.values[store]
        continues = value.topic == held.value.topic
        acknowledged = held.acknowledged if continues else ()
        return self.world.stores.number(
            held._replace(
                value=value, deleting=held.deleting and continues, acknowledged=acknowledged
            )
        )

    def _requesting(self, store: int, requested: RequestedTarget) -> int:
        """Returns the store with the target of an operation, or its cancellation."""
        held = self.world.stores.values[store]
        return self.world.stores.number(held._replace(requested=requested))

    def _deleting(self, store: int) -> int:
        """Returns the store after a request to delete the topic."""
        held = self.world.stores.values[store]
        return self.world.stores.number(held._replace(deleting=True))

    def write(self, state: State, value: Value) -> State:
        """Returns the state after the store has accepted `value`, not canonical yet.

        Messages that name the former revision in a compare-and-swap are void; replicas that follow
        it are outdated.
        """
        store = self.valued(state[STORE], value)
        messages = self.voided(state[MESSAGES])
        ghost = self.after_write(state[GHOST], state[STORE], store, state[1], state[2], state[3])
        if not any(isinstance(m, Command) for m in self.world.messages.values[messages]):
            aged = [self.outdated(state[slot], store) for slot in BROKERS]
        else:
            replicas, messages = writes.aged(
                [self._replicas[state[slot]] for slot in BROKERS],
                self.world.messages.values[messages],
                self.world.messages,
            )
            aged = [self.quiescent(self._number(r), messages) for r in replicas]
        return (store, aged[0], aged[1], aged[2], messages, ghost, state[6])

    def _outdated(self, replica: int, store: int) -> int:
        r = self._replicas[replica]
        if self.knows_all(r, store) or (r.revision == NEVER and not r.stopped):
            return replica
        return self._number(r._replace(revision=min(r.revision, 1), stopped=()))

    def knows_all(self, replica: Replica, store: int) -> bool:
        """Whether the present command contains nothing new for a follower.

        It would change only the revision, which orders commands and decides whose description
        counts for a recovery. While there is a leader and no command is ever late, a follower
        that has had the command and one that has yet to get it are equivalent.
        """
        known, value = replica.value, self.world.stores.values[store].value
        return (
            self._commands_are_prompt
            and known is not None
            and replica.leading is None
            and not replica.damaged
            and value.leader not in (NO_LEADER, replica.broker)
            and (known.leader, known.epoch) == (value.leader, value.epoch)
        )

    def _quiescent(self, replica: int, messages: int) -> int:
        """Merges revisions that make no difference once no command to the broker is in flight.

        All outdated revisions are equal then, and those at which it was stopped do not matter.
        """
        r = self._replicas[replica]
        if r.revision in (NEVER, 1, PRESENT) and all(at == PRESENT for _, at in r.stopped):
            return replica
        for message in self.world.messages.values[messages]:
            if isinstance(message, Command) and message.broker == r.broker:
                return replica
        revision = r.revision if r.revision in (NEVER, PRESENT) else 1
        stopped = tuple((topic, at) for topic, at in r.stopped if at == PRESENT)
        return self._number(r._replace(revision=revision, stopped=stopped))

    # -- messages --------------------------------------------------------------------------

    def _voided(self, messages: int) -> int:
        kept = self.world.messages.values[messages]
        return self.world.messages.number(tuple(m for m in kept if not writes.is_swap(m)))

    def _takeable(self, messages: int, controller_epoch: int) -> int:
        """Removes the controllers' writes that are rejected in this term, and in all later ones."""
        kept = self.world.messages.values[messages]
        return self.world.messages.number(
            tuple(
                m
                for m in kept
                if not isinstance(m, ElectionWrite)
                or self.is_taken(m.controller_epoch, controller_epoch)
            )
        )

    def _fences(self, leader: int, fetch: FetchRequest) -> bool:
        """Whether this broker leads a later epoch, and rejects the fetch without noting it.

        Such a fetch might as well be lost, since epochs only grow. This does not hold if
        another topic may take the name, with epochs of its own.
        """
        _, follower, incarnation, position = fetch
        return not self._has_topics and manager_steps.fences(
            self._replicas[leader], follower, incarnation, position
        )

    def _unfenced(self, messages: int, replica: int) -> int:
        """Removes the fetches that this replica fences."""
        broker = self._replicas[replica].broker
        return self.world.messages.number(
            tuple(
                m
                for m in self.world.messages.values[messages]
                if not isinstance(m, FetchRequest)
                or m.position.leader != broker
                or not self.fences(replica, m)
            )
        )

    def _without(self, messages: int, index: int) -> int:
        kept = self.world.messages.values[messages]
        return self.world.messages.number(kept[:index] + kept[index + 1 :])

    def _without_answers(self, messages: int, broker: int) -> int:
        """Removes the answers to a process that has ended."""
        kept = self.world.messages.values[messages]
        return self.world.messages.number(
            tuple(m for m in kept if not (isinstance(m, FetchResponse) and m.follower == broker))
        )

    # -- the ghost, which no process knows -------------------------------------------------

    def _sound(self, ghost: int, broker: int, incarnation: int) -> int:
        held = self.world.ghosts.values[ghost]
        sound = list(held.sound)
        sound[broker - 1] = incarnation
        return self.world.ghosts.number(held._replace(sound=(sound[0], sound[1], sound[2])))

    def _note(self, ghost: int, before: int, after: int, store: int) -> tuple[int, str | None]:
        noted, broken = invariants.noted(
            self.world.ghosts.values[ghost],
            self._replicas[before],
            self._replicas[after],
            self.world.stores.values[store],
        )
        return self.world.ghosts.number(noted), broken

    def _after_write(self, ghost: int, old: int, new: int, r1: int, r2: int, r3: int) -> int:
        stores = self.world.stores.values
        replicas = self._replicas
        return self.world.ghosts.number(
            writes.after_write(
                self.world.ghosts.values[ghost],
                stores[old].value,
                stores[new].value,
                (replicas[r1], replicas[r2], replicas[r3]),
            )
        )
