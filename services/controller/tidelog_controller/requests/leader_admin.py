"""Who leads, by request, by the clock and in maintenance.

Wishes for leaders are soft state of this reign: a request waits for its own until its time is up,
and they outlive it; automatic balance finds again what it has not reached. Marks of maintenance are
durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause
from tidelog_controller.policies.leader_balance import (
    LeaderBalancing,
    Leadership,
    hindrance,
    maintenance_successors,
    preferred_elections,
)
from tidelog_controller.policies.leader_moves import WantedLeader, in_sync
from tidelog_controller.requests.moved_leaders import MovedLeaders
from tidelog_controller.requests.topic_checks import (
    known_topic,
    no_such_partition,
    outcome_unknown,
    request_timeout_ms,
)
from tidelog_controller.state.admin_answers import LeaderResult, LeadersAnswer
from tidelog_controller.state.admin_requests import (
    ElectPreferredLeaders,
    MoveLeaders,
    PartitionSelector,
    SetMaintenance,
)
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.purposes import MaintenanceChange
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.metadata.schema import LeaderAndIsr

MAX_LEADERS_MOVED = 1_000
MAX_BROKERS_NAMED = 50
_IN_TURN = "brokers hand over one by one, and it gets it in its turn while it is in sync"
_HANDED_OVER_IN_TURN = "brokers hand over one by one, and it gets it as soon as that one is in sync"
_MAINTENANCE_ENDED = "somebody has taken the broker out of maintenance again, so that it stays"
# Elections that automatic balance begins at once.
MAX_BALANCED_AT_ONCE = 500


@dataclass(slots=True)
class _Moving:
    """`results`: those that are known already."""

    request_id: int
    wanted: dict[TopicPartition, WantedLeader]
    before: dict[TopicPartition, int]
    results: list[LeaderResult]
    deadline_ms: int


@dataclass(slots=True)
class _Maintaining:
    """`leaders`: who is to lead what the brokers led when it was asked for. `is_written`: the
    marks were once as asked for; who changes them later has the last word."""

    request: SetMaintenance
    leaders: dict[TopicPartition, tuple[int, int]]
    kept: int
    deadline_ms: int
    is_written: bool = False


class LeaderAdmin:
    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        balancing: LeaderBalancing | None,
    ) -> None:
        self._context = context
        self._transactions = transactions
        self._balancing = balancing
        self._moving: dict[int, _Moving] = {}
        self._maintaining: dict[int, _Maintaining] = {}
        self._balance_at_ms: int | None = None
        # Of automatic balance, and of requests whose time was up.
        self._unattended: dict[TopicPartition, WantedLeader] = {}
        self._moved = MovedLeaders(context, self._hindrance)

    # Requests.

    def elect(self, request: ElectPreferredLeaders, now_ms: int) -> list[Command]:
        """Those that are led by their preferred replicas are left out."""
        try:
            names = self._selected(request.selectors)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        states = {name: self._context.state_to_stay(name) for name in names}
        if not request.dry_run:
            self._supersede({n: state.replicas[0] for n, state in states.items() if state})
        wanted = {
            name: WantedLeader(
                state.replicas[0],
                False,
                Cause.PREFERRED_LEADER,
                request.trace_id,
                *request.asker,
            )
            for name, state in states.items()
            if state is not None and state.leader != state.replicas[0]
        }
        return self._begin(
            request.request_id, wanted, request.timeout_ms, now_ms, dry_run=request.dry_run
        )

    def move(self, request: MoveLeaders, now_ms: int) -> list[Command]:
        wanted: dict[TopicPartition, WantedLeader] = {}
        try:
            if not 1 <= len(request.moves) <= MAX_LEADERS_MOVED:
                raise _invalid(
                    f"{len(request.moves)} leaders are named; name 1 to {MAX_LEADERS_MOVED} at once"
                )
            for name, leader in sorted(request.moves):
                if name in wanted:
                    raise _invalid(f"{name} is named twice; name each partition once")
                topic = known_topic(self._context, name.topic)
                self._check_partition(name)
                busy = self._context.operations.busy_with(name, topic.entry.topic_id)
                if busy:
                    raise _busy(name, busy)
                wanted[name] = WantedLeader(
                    leader, True, Cause.LEADER_MOVED, request.trace_id, *request.asker
                )
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        return self._begin(
            request.request_id, wanted, request.timeout_ms, now_ms, dry_run=request.dry_run
        )

    def maintain(self, request: SetMaintenance, now_ms: int) -> list[Command]:
        context = self._context
        try:
            if not 1 <= len(request.broker_ids) <= MAX_BROKERS_NAMED:
                raise _invalid(
                    f"{len(request.broker_ids)} brokers are named; name 1 to {MAX_BROKERS_NAMED} "
                    "at once"
                )
            for broker_id in request.broker_ids:
                # A mark may outlive its broker, and lasts until it is taken off.
                if request.maintenance or broker_id not in context.maintenance:
                    check_known_broker(context, broker_id)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        maintenance = {*context.maintenance, *request.broker_ids}
        led = self._led_by(request.broker_ids if request.maintenance else ())
        successors = maintenance_successors(led, context.running_brokers(), maintenance)
        leaders = {
            name: (led[name].leader, successor)
            for name, successor in successors.items()
            if successor is not None
        }
        kept = len(successors) - len(leaders)
        waiting = _Maintaining(
            request, leaders, kept, now_ms + request_timeout_ms(request.timeout_ms)
        )
        if request.dry_run:
            return [Reply(request.request_id, AdminReply(None, answer=_maintained(waiting)))]
        self._maintaining[request.request_id] = waiting
        return []

    # What waits.

    def is_settled(self, operation_id: str) -> bool:
        """Of an operation whose moves are done: whether it may end."""
        return self._moved.is_settled(operation_id)

    def advance(self, now_ms: int) -> list[Command]:
        commands: list[Command] = []
        for moving in list(self._moving.values()):
            commands += self._advance_moving(moving, now_ms)
        for maintaining in list(self._maintaining.values()):
            commands += self._advance_maintaining(maintaining, now_ms)
        self._balance(now_ms)
        # What was reached once is not wanted any more: who leads later is another matter. Nor is
        # what cannot be now: nobody would expect it hours later.
        self._unattended = {
            name: wish for name, wish in self._unattended.items() if self._is_to_come(name, wish)
        }
        wanted = {**self._moved.advance(), **self._unattended}
        for moving in self._moving.values():
            wanted |= moving.wanted
        self._context.want_leaders(wanted)
        return commands

    def wake_at_ms(self) -> int | None:
        times = [moving.deadline_ms for moving in self._moving.values()]
        times += [maintaining.deadline_ms for maintaining in self._maintaining.values()]
        if self._balance_at_ms is not None:
            times.append(self._balance_at_ms)
        return min(times, default=None)

    def _begin(
        self,
        request_id: int,
        wanted: Mapping[TopicPartition, WantedLeader],
        timeout_ms: int,
        now_ms: int,
        *,
        dry_run: bool,
    ) -> list[Command]:
        states = {name: self._context.state_to_stay(name) for name in wanted}
        before = {name: s.leader for name, s in states.items() if s is not None}
        moving = _Moving(request_id, {}, before, [], now_ms + request_timeout_ms(timeout_ms))
        for name, leader in wanted.items():
            why = self._hindrance(name, leader)
            if why is None and not dry_run:
                moving.wanted[name] = leader
            else:
                error = self._refusal(leader.leader, why) if why else None
                moving.results.append(LeaderResult(name, before[name], leader.leader, error))
        self._supersede({name: wish.leader for name, wish in moving.wanted.items()})
        self._moving[request_id] = moving
        return self._advance_moving(moving, now_ms) if dry_run else []

    def _supersede(self, leaders: Mapping[TopicPartition, int]) -> None:
        """Who asks last for a leader has the last word: what else was wished for the partition,
        and has not come about, would take it back."""
        for name, leader in leaders.items():
            self._unattended.pop(name, None)
            for other in self._moving.values():
                older = other.wanted.get(name)
                if older is not None and older.leader != leader:
                    del other.wanted[name]
                    other.results.append(_superseded(name, other.before[name], older, leader))

    def _advance_moving(self, moving: _Moving, now_ms: int) -> list[Command]:
        for name, leader in list(moving.wanted.items()):
            result = self._result(moving, name, leader, now_ms)
            if result is not None:
                del moving.wanted[name]
                moving.results.append(result)
        if moving.wanted:
            return []
        del self._moving[moving.request_id]
        answer = LeadersAnswer(tuple(sorted(moving.results, key=lambda r: r.partition)), 0)
        return [Reply(moving.request_id, AdminReply(None, answer=answer))]

    def _result(
        self, moving: _Moving, name: TopicPartition, wanted: WantedLeader, now_ms: int
    ) -> LeaderResult | None:
        """None: not yet."""
        state, before = self._context.state_to_stay(name), moving.before[name]
        if state is None:
            gone = TidelogError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} was deleted meanwhile"
            )
            return LeaderResult(name, before, wanted.leader, gone)
        if state.leader == wanted.leader and (
            not wanted.first or state.replicas[0] == wanted.leader
        ):
            return LeaderResult(name, before, wanted.leader, None)
        if not wanted.first and state.replicas[0] != wanted.leader:
            # An operation, or a move that ended between the two, gave another order.
            return _superseded(name, before, wanted, state.replicas[0])
        if now_ms < moving.deadline_ms:
            return None
        why = self._hindrance(name, wanted)
        if why is None:
            self._unattended[name] = wanted
        late = TidelogError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"broker {wanted.leader} does not lead {name} yet: "
            f"{f'{why}; ask again' if why else _IN_TURN}",
        )
        return LeaderResult(name, before, wanted.leader, late)

    def _refusal(self, broker_id: int, why: str) -> TidelogError:
        try:
            check_known_broker(self._context, broker_id)
        except TidelogError as unknown:
            return unknown
        return TidelogError(ErrorCode.NOT_ELIGIBLE_LEADER, why)

    def _hindrance(self, name: TopicPartition, wanted: WantedLeader) -> str | None:
        state = self._context.state_to_stay(name)
        if state is None:
            return f"{name} has no replicas yet; wait until it has"
        leader = wanted.leader
        if leader not in state.replicas:
            return (
                f"broker {leader} holds no replica of {name}; those that do: {list(state.replicas)}"
            )
        if wanted.first and state.moving is not None:
            return f"{name} is being moved by operation {state.moving.operation}; wait for its end"
        first = self._leadership(name, state)._replace(
            replicas=(leader, *(b for b in state.replicas if b != leader))
        )
        context = self._context
        return hindrance(
            first, context.running_brokers(), context.maintenance, context.rejecting_disks
        )

    # Maintenance.

    def _advance_maintaining(self, waiting: _Maintaining, now_ms: int) -> list[Command]:
        change = self._maintenance_change(waiting.request)
        timed_out = now_ms >= waiting.deadline_ms
        if change is not None and not waiting.is_written:
            if timed_out:
                unknown = outcome_unknown("the brokers are in maintenance")
                return self._end_maintaining(waiting, AdminReply(unknown))
            if self._transactions.is_in_flight(change):
                return []
            return [self._transactions.begin(change)]
        waiting.is_written = True
        still_led = [n for n, (before, _) in waiting.leaders.items() if self._leads(before, n)]
        if still_led and change is None and not timed_out:
            return []
        why = _MAINTENANCE_ENDED if change is not None else _HANDED_OVER_IN_TURN
        answer = _maintained(waiting, frozenset(still_led), why)
        return self._end_maintaining(waiting, AdminReply(None, answer=answer))

    def _maintenance_change(self, request: SetMaintenance) -> MaintenanceChange | None:
        """None: all is as asked for."""
        marks = self._context.maintenance
        named = sorted(set(request.broker_ids))
        if request.maintenance:
            marked = tuple(broker_id for broker_id in named if broker_id not in marks)
            change = MaintenanceChange(marked, (), request.asker, request.trace_id)
        else:
            unmarked = tuple((b, marks[b].revision) for b in named if b in marks)
            change = MaintenanceChange((), unmarked, request.asker, request.trace_id)
        return change if change.marked or change.unmarked else None

    def _end_maintaining(self, waiting: _Maintaining, reply: AdminReply) -> list[Command]:
        del self._maintaining[waiting.request.request_id]
        return [Reply(waiting.request.request_id, reply)]

    def _is_to_come(self, name: TopicPartition, wish: WantedLeader) -> bool:
        """It does not lead yet, and can."""
        state = self._context.state_to_stay(name)
        if state is None or self._hindrance(name, wish) is not None:
            return False
        is_first = state.replicas[0] == wish.leader
        return not is_first if wish.first else is_first and state.leader != wish.leader

    def _leads(self, broker_id: int, name: TopicPartition) -> bool:
        state = self._context.state_to_stay(name)
        return state is not None and state.leader == broker_id

    # Automatic balance.

    def _balance(self, now_ms: int) -> None:
        """What was wished before, and has not come about, goes on."""
        if self._balancing is None:
            return
        if self._balance_at_ms is not None and now_ms < self._balance_at_ms:
            return
        due = self._balance_at_ms is not None
        self._balance_at_ms = now_ms + self._balancing.interval_ms
        if not due:
            return
        context = self._context
        partitions = self._led_by(None)
        chosen = preferred_elections(
            partitions,
            context.running_brokers(),
            context.maintenance,
            self._balancing.threshold_percent,
            MAX_BALANCED_AT_ONCE,
            context.rejecting_disks,
        )
        balanced = {
            name: WantedLeader(partitions[name].replicas[0], False, Cause.PREFERRED_LEADER)
            for name in chosen
        }
        self._unattended = balanced | self._unattended

    # What is known.

    def _led_by(self, broker_ids: Iterable[int] | None) -> dict[TopicPartition, Leadership]:
        """Partitions of these leaders; None: all."""
        context = self._context
        found: dict[TopicPartition, Leadership] = {}
        leaders = None if broker_ids is None else frozenset(broker_ids)
        for topic in sorted(context.topics):
            for name in context.partitions_of(topic):
                state = context.state_to_stay(name)
                if state is not None and (leaders is None or state.leader in leaders):
                    found[name] = self._leadership(name, state)
        return found

    def _leadership(self, name: TopicPartition, state: LeaderAndIsr) -> Leadership:
        topic = self._context.topics.get(name.topic)
        isr = in_sync(state, self._context.live, topic.rules) if topic is not None else ()
        return Leadership(state.replicas, state.leader, isr)

    def _selected(self, selectors: Iterable[PartitionSelector]) -> list[TopicPartition]:
        names: dict[TopicPartition, None] = {}
        # Each once: a topic may be named thousands of times, and has thousands of partitions.
        chosen = list(dict.fromkeys(selectors))
        if not chosen:
            return [n for topic in sorted(self._context.topics) for n in self._placed(topic)]
        for topic, numbers in chosen:
            known_topic(self._context, topic)
            for number in numbers:
                name = TopicPartition(topic, number)
                self._check_partition(name)
                names[name] = None
            if not numbers:
                names |= dict.fromkeys(self._placed(topic))
        return sorted(names)

    def _placed(self, topic: str) -> list[TopicPartition]:
        names = self._context.partitions_of(topic)
        return [name for name in names if self._context.state_to_stay(name) is not None]

    def _check_partition(self, name: TopicPartition) -> None:
        if self._context.state_to_stay(name) is None:
            raise no_such_partition(name, self._context.topics[name.topic])


def check_known_broker(context: Context, broker_id: int) -> None:
    """It is registered, or holds replicas."""
    if broker_id in context.brokers or next(context.replicas_on(broker_id), None) is not None:
        return
    raise TidelogError(
        ErrorCode.UNKNOWN_BROKER,
        f"broker {broker_id} is not registered and holds no replicas; those that are registered: "
        f"{sorted(context.brokers)}",
    )


def _maintained(
    waiting: _Maintaining,
    still_led: frozenset[TopicPartition] = frozenset(),
    why: str = "",
) -> LeadersAnswer:
    results = [
        LeaderResult(name, before, successor, _still_led(name, why) if name in still_led else None)
        for name, (before, successor) in sorted(waiting.leaders.items())
    ]
    return LeadersAnswer(tuple(results), waiting.kept)


def _still_led(name: TopicPartition, why: str) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT, f"{name} has not got its other leader yet; {why}"
    )


def _superseded(
    name: TopicPartition, before: int, wanted: WantedLeader, instead: int
) -> LeaderResult:
    other = TidelogError(
        ErrorCode.NOT_ELIGIBLE_LEADER,
        f"broker {wanted.leader} does not lead {name}: broker {instead} was asked for since",
    )
    return LeaderResult(name, before, wanted.leader, other)


def _busy(name: TopicPartition, operation_id: str) -> TidelogError:
    return TidelogError(
        ErrorCode.PARTITION_BUSY,
        f"the replicas of {name}, and their order, are those of operation {operation_id} until it "
        "has ended; wait for that, or cancel it first",
    )


def _invalid(problem: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_REQUEST, problem)
