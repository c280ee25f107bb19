"""Whether a state heals.

From it on nothing fails any more, every process runs and every message arrives. Production
decisions, taken in turn, have to lead to a partition that commits.
"""

from __future__ import annotations

from .broker_actions import put
from .cluster_actions import register
from .steps import Steps
from .values import BROKERS, NEVER, NOT_SYNCED, PRESENT, Form
from .world import MESSAGES, STORE, State, World

MAX_ROUNDS = 40
FETCHES_PER_ROUND = 4


class Healing:
    """Checks healing, and caches the result for every state on the way."""

    def __init__(
        self, world: World, steps: Steps, nothing: tuple[int, int], *, has_topics: bool
    ) -> None:
        """`nothing`: ghost and budget, which do not matter here."""
        self._world = world
        self._steps = steps
        self._nothing = nothing
        self._has_topics = has_topics
        self._heals: dict[tuple[int, ...], bool] = {}
        self._no_messages = world.messages.number(())

    def heals(self, state: State) -> bool:
        """Whether the state heals.

        Messages in flight count as lost: a state in which one has arrived is a state of its
        own.
        """
        found = self._heals.get(state[:MESSAGES])
        return self._run(state) if found is None else found

    def _run(self, state: State) -> bool:
        passed: list[tuple[int, ...]] = [state[:MESSAGES]]
        store, r1, r2, r3 = state[:MESSAGES]
        now: State = (store, r1, r2, r3, self._no_messages, *self._nothing)
        for slot in BROKERS:
            now = put(now, slot, self._steps.quiescent(now[slot], self._no_messages))
        found = False
        for _ in range(MAX_ROUNDS):
            if is_writable(self._world, now):
                found = True
                break
            now = self._world.canonical(self._round(now))
            known = self._heals.get(now[:MESSAGES])
            if known is not None:
                found = known
                break
            passed.append(now[:MESSAGES])
        for key in passed:
            self._heals[key] = found
        return found

    def _round(self, state: State) -> State:
        """Gives each process its turn once."""
        steps = self._steps
        for broker in BROKERS:
            state = self._revive(state, broker)
        state = put(state, STORE, steps.seen(steps.noticed(state[STORE])))
        new = steps.decide(*state[:MESSAGES])
        if new is not None:
            state = steps.write(state, new)
        for broker in BROKERS:
            topics = self._has_topics
            forms = steps.forms(broker, state[STORE]) if topics else (Form.ONE,)
            for form in forms:
                updated, store = steps.commanded(state[broker], state[STORE], form)
                state = put(put(state, broker, updated), STORE, store)
        for broker in BROKERS:
            state = self._sync(state, broker)
        for broker in BROKERS:
            state = self._fetch(state, broker)
        for broker in BROKERS:
            state = self._change_isr(state, broker)
        return state

    def _revive(self, state: State, broker: int) -> State:
        """Ends a stopping process; starts the broker, repairs its replica, and registers it."""
        steps = self._steps
        replica = self._world.replicas.values[state[broker]]
        registered = self._world.stores.values[state[STORE]].registered[broker - 1]
        if (
            registered is not None
            and not registered.running
            and replica.own == registered.incarnation
        ):
            state = put(state, broker, steps.ended(state[broker]))
        if not self._world.replicas.values[state[broker]].up:
            state = put(state, broker, steps.started(state[broker]))
        if replica.damaged:
            resigned = steps.resigned(state[STORE], broker)
            if resigned is not None:
                state = steps.write(state, resigned)
            state = put(state, broker, steps.resumed(state[broker], 0))
        replica = self._world.replicas.values[state[broker]]
        if registered is None or replica.own != registered.incarnation:
            state = register(self._world, steps, state, broker)
        return state

    def _sync(self, state: State, broker: int) -> State:
        replica = self._world.replicas.values[state[broker]]
        if replica.flushed in (NOT_SYNCED, len(replica.log)):
            return state
        return put(state, broker, self._steps.flush(state[broker], len(replica.log)))

    def _fetch(self, state: State, broker: int) -> State:
        for _ in range(FETCHES_PER_ROUND):
            position = self._steps.position(state[broker])
            if position is None:
                return state
            both = self._steps.fetch(state[broker], state[position.leader])
            if both is None:
                return state
            state = put(put(state, broker, both[0]), position.leader, both[1])
        return state

    def _change_isr(self, state: State, broker: int) -> State:
        """Lets a leader learn the key, change its ISR, and receive the answer."""
        steps = self._steps
        replica = self._world.replicas.values[state[broker]]
        if replica.leading is None or not replica.up:
            return state
        if replica.revision != PRESENT:
            return put(state, broker, steps.observe(state[broker], state[STORE]))
        if replica.leading.proposed is None:
            proposals = steps.proposals(state[broker], state[STORE])
            joining = [proposing for lagging, proposing in proposals if not lagging]
            if not joining:
                return state
            state = put(state, broker, joining[0])
        swap = steps.swap(state[broker], state[STORE])
        if swap.value is None:
            return put(state, broker, swap.refused)
        after = steps.write(state, swap.value)
        return put(after, broker, steps.is_written(after[broker]))


def is_writable(world: World, state: State) -> bool:
    """Whether the partition is fully healed.

    It has a leader in the present epoch, all its replicas in the ISR, and everything committed.
    It is on its target brokers, and on no other.
    """
    store = world.stores.values[state[STORE]]
    value, requested = store.value, store.requested
    if store.deleting or value.target:
        return False
    if requested is not None and not requested.cancelled and value.replicas != requested.target:
        return False
    if value.leader not in BROKERS or len(value.isr) != len(value.replicas):
        return False
    others = [world.replicas.values[state[slot]] for slot in BROKERS if slot not in value.replicas]
    if not all(r.up and not r.log_of(value.topic) for r in others):
        return False
    replicas = [world.replicas.values[state[slot]] for slot in value.replicas]
    leader = world.replicas.values[state[value.leader]]
    return (
        leader.leading is not None
        and leader.revision == PRESENT
        and leader.leading.proposed is None
        and leader.high_watermark == len(leader.log)
        and all(r.up and r.revision != NEVER for r in replicas)
        and all((r.topic, r.log) == (value.topic, leader.log) for r in replicas)
    )
