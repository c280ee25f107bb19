"""Every step of brokers and their messages: append, fetch, change the ISR, take commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .invariants import broken_by_late
from .joiner_guards import guard_holds, joiners_of
from .scenarios import Scenario
from .steps import Steps
from .values import (
    PRESENT,
    Command,
    FetchRequest,
    FetchResponse,
    Form,
    IsrWrite,
    Message,
    Replica,
)
from .world import BUDGET, GHOST, MESSAGES, STORE, State, World
from .writes import broken_by_joiners, broken_by_write

Label = tuple[str | int, ...]


class Step(NamedTuple):
    """A possible next state.

    - `broken`: the invariant that this very step breaks
    """

    label: Label
    state: State
    broken: str | None


class BrokerActions:
    def __init__(self, world: World, scenario: Scenario, steps: Steps) -> None:
        self.world = world
        self.scenario = scenario
        self._kinds, self._late = scenario.kinds, scenario.late
        self._has_topics = scenario.has_topics
        self._commands_are_late = bool(self._late & {"command", "stop"})
        self._steps = steps
        self._replicas = world.replicas.values
        self._with: dict[tuple[int, Message], int | None] = {}

    def all(self, state: State) -> Iterator[Step]:
        slots = (1, state[1]), (2, state[2]), (3, state[3])
        for slot, number in slots:
            replica = self._replicas[number]
            if not replica.up:
                continue
            if replica.leading is not None:
                yield from self._leads(state, slot, number, replica)
            yield from self._follows(state, slot, number, replica)
            if self.scenario.synced:
                yield from self._syncs(state, slot, number, replica)
            yield from self._commands(state, slot, number)
        if state[MESSAGES]:
            yield from self._arrivals(state)

    # -- helpers ---------------------------------------------------------------------------

    def changed(self, state: State, label: Label, slot: int, replica: int) -> Step:
        """Returns the step that replaces the replica at `slot` (1 to 3)."""
        ghost, broken = self._steps.note(state[GHOST], state[slot], replica, state[STORE])
        store, r1, r2, r3, messages, _, budget = state
        if slot == 1:
            r1 = replica
        elif slot == 2:
            r2 = replica
        else:
            r3 = replica
        return Step(
            label, self.world.canonical((store, r1, r2, r3, messages, ghost, budget)), broken
        )

    def sent(self, state: State, label: Label, message: Message) -> Iterator[Step]:
        """Yields the step that keeps the message in flight, if there is room."""
        key = (state[MESSAGES], message)
        if key not in self._with:
            kept = self.world.messages.values[state[MESSAGES]]
            self._with[key] = None
            if len(kept) < self.scenario.in_flight and message not in kept:
                more = tuple(sorted((*kept, message), key=repr))
                self._with[key] = self.world.messages.number(more)
        messages = self._with[key]
        if messages is not None:
            after = put(state, MESSAGES, messages)
            yield Step(label, self.world.canonical(after), None)

    # -- commands --------------------------------------------------------------------------

    def _commands(self, state: State, slot: int, number: int) -> Iterator[Step]:
        """Yields commands that arrive at once or late.

        Late ones also come from deposed controllers, which know what the present one knows.
        """
        forms = self._steps.forms(slot, state[STORE]) if self._has_topics else (Form.ONE,)
        for form in forms:
            updated, store = self._steps.commanded(number, state[STORE], form)
            if (updated, store) != (number, state[STORE]):
                label: Label = ("takes", slot, form.name)
                messages = self._steps.unfenced(state[MESSAGES], updated)
                after = put(put(state, STORE, store), MESSAGES, messages)
                yield self.changed(after, label, slot, updated)
            if not self._commands_are_late:
                continue
            command = self._steps.command(slot, state[STORE], form)
            if command is not None and command.kind in self._late:
                for controller_epoch in range(command.controller_epoch + 1):
                    label = (
                        "a command is late",
                        slot,
                        form.name,
                        command.controller_epoch - controller_epoch,
                    )
                    yield from self.sent(
                        state, label, command._replace(controller_epoch=controller_epoch)
                    )

    # -- data ------------------------------------------------------------------------------

    def _follows(self, state: State, slot: int, number: int, replica: Replica) -> Iterator[Step]:
        position = self._steps.position(number)
        if position is None:
            return
        both = self._steps.fetch(number, state[position.leader])
        if both is not None:
            updated, served = both
            label = ("fetches", slot, position.leader)
            yield self.changed(put(state, slot, updated), label, position.leader, served)
        if "fetch" in self._late:
            request = FetchRequest("fetch", slot, replica.incarnation, position)
            if self._steps.fences(state[position.leader], request):
                return
            yield from self.sent(state, ("sends a fetch", slot, position.leader), request)

    def _syncs(self, state: State, slot: int, number: int, replica: Replica) -> Iterator[Step]:
        for up_to in range(replica.flushed + 1, len(replica.log) + 1):
            synced = self._steps.flush(number, up_to)
            yield self.changed(state, ("syncs", slot, up_to), slot, synced)

    def _leads(self, state: State, slot: int, number: int, replica: Replica) -> Iterator[Step]:
        budget = self.world.budgets.values[state[BUDGET]]
        if budget.records:
            record = self.scenario.records - budget.records
            left = self.world.budgets.number(budget._replace(records=budget.records - 1))
            grown = self._steps.append(number, record)
            yield self.changed(put(state, BUDGET, left), ("appends", slot), slot, grown)
        if replica.revision != PRESENT:
            observed = self._steps.observe(number, state[STORE])
            yield self.changed(state, ("reads the key", slot), slot, observed)
        assert replica.leading is not None
        assert replica.value is not None
        proposed = replica.leading.proposed
        if proposed is None:
            yield from self._proposals(state, slot, number, replica)
            return
        yield self._compare_and_swap(state, slot, number)
        if replica.revision == PRESENT and "isr" in self._late:
            write = IsrWrite("isr", proposed, joiners_of(replica.value, proposed))
            yield from self.sent(state, ("sends its ISR change", slot), write)

    # -- the ISR ---------------------------------------------------------------------------

    def _proposals(self, state: State, slot: int, number: int, replica: Replica) -> Iterator[Step]:
        for lagging, proposing in self._steps.proposals(number, state[STORE]):
            paid: State | None = state
            if lagging and not self._is_away(state, lagging, replica):
                paid = self.pay(state, "lag")
            if paid is not None:
                label = ("finds lagging", slot, lagging) if lagging else ("proposes", slot)
                yield self.changed(paid, label, slot, proposing)

    def pay(self, state: State, kind: str) -> State | None:
        """Returns the state after paying for a fault of this kind, or None without a budget."""
        if kind not in self._kinds:
            return None
        budget = self.world.budgets.values[state[BUDGET]]
        if not budget.faults:
            return None
        left = self.world.budgets.number(budget._replace(faults=budget.faults - 1))
        return put(state, BUDGET, left)

    def _is_away(self, state: State, broker: int, leader: Replica) -> bool:
        """Whether the broker cannot have fetched from this leader lately."""
        position = self._steps.position(state[broker])
        assert leader.value is not None
        at = (leader.broker, leader.value.epoch, leader.topic)
        return position is None or (position.leader, position.epoch, position.topic) != at

    def _compare_and_swap(self, state: State, slot: int, number: int) -> Step:
        """Returns the step of the leader's write together with its answer."""
        swap = self._steps.swap(number, state[STORE])
        if swap.value is None:
            label: Label = ("is denied its ISR change", slot, swap.why)
            return self.changed(state, label, slot, swap.refused)
        after = self._steps.write(state, swap.value)
        written = self._steps.is_written(after[slot])
        step = self.changed(after, ("writes its ISR change", slot), slot, written)
        broken = swap.broken or broken_by_write(self.world.stores.values[state[STORE]], swap.value)
        return step if broken is None else step._replace(broken=broken)

    # -- messages in flight ----------------------------------------------------------------

    def _arrivals(self, state: State) -> Iterator[Step]:
        for index, message in enumerate(self.world.messages.values[state[MESSAGES]]):
            without = put(state, MESSAGES, self._steps.without(state[MESSAGES], index))
            if isinstance(message, Command):
                yield self._command_arrives(without, message)
                continue
            yield Step(("is lost", *words(message)), self.world.canonical(without), None)
            match message:
                case FetchRequest():
                    yield from self._request_arrives(without, message)
                case FetchResponse():
                    yield from self._response_arrives(without, message)
                case IsrWrite():
                    yield from self._isr_write_arrives(without, message)
                case _:
                    pass  # a controller's message, which concerns no broker

    def _request_arrives(self, state: State, message: FetchRequest) -> Iterator[Step]:
        _, follower, incarnation, position = message
        leader = position.leader
        if not self._replicas[state[leader]].up:
            return
        served, answer = self._steps.serve(state[leader], follower, incarnation, position)
        label = ("a late fetch arrives", follower, leader)
        arrived = self.changed(state, label, leader, served)
        if served != state[leader]:
            yield arrived
        if answer is None or "answer" not in self._late:
            return
        if self._replicas[state[follower]].up:
            response = FetchResponse("answer", follower, position, answer)
            label = ("a late fetch arrives and is answered", follower, leader)
            for step in self.sent(arrived.state, label, response):
                yield step._replace(broken=arrived.broken)

    def _response_arrives(self, state: State, message: FetchResponse) -> Iterator[Step]:
        _, follower, position, answer = message
        if not self._replicas[state[follower]].damaged:
            updated = self._steps.follow(state[follower], position, answer)
            if updated != state[follower]:
                label = ("a late answer arrives", follower, position.leader)
                yield self.changed(state, label, follower, updated)

    def _isr_write_arrives(self, state: State, message: IsrWrite) -> Iterator[Step]:
        store = self.world.stores.values[state[STORE]]
        if guard_holds(store.registered, message.joiners):
            after = self._steps.write(state, message.value)
            label = ("a late ISR change is taken", message.value.leader)
            broken = broken_by_joiners(store.registered, message.joiners)
            broken = broken or broken_by_write(store, message.value)
            yield Step(label, self.world.canonical(after), broken)

    def _command_arrives(self, state: State, command: Command) -> Step:
        """Returns the step in which a command arrives; a rejected one equals a lost one."""
        slot = command.broker
        taken = self._steps.commanded_late(state[slot], command)
        broken = broken_by_late(
            self._replicas[state[slot]], self._replicas[taken], command.controller_epoch
        )
        taken = self._steps.quiescent(taken, state[MESSAGES])
        state = put(state, MESSAGES, self._steps.unfenced(state[MESSAGES], taken))
        label = ("a late command arrives", slot, command.form.name)
        step = self.changed(state, label, slot, taken)
        return step if broken is None else step._replace(broken=broken)


def put(state: State, part: int, number: int) -> State:
    parts = list(state)
    parts[part] = number
    return tuple(parts)  # type: ignore[return-value]


def words(message: Message) -> tuple[str | int, ...]:
    match message:
        case FetchRequest(_, follower, _, position):
            return ("fetch", follower, position.leader)
        case FetchResponse(_, follower, position, _):
            return ("answer", follower, position.leader)
        case IsrWrite(_, value, _):
            return ("ISR change", value.leader)
        case Command(_, broker, _, _, _, _, _):
            return ("command", broker)
        case _:
            return ("election",)
