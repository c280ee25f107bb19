"""What one incarnation of a broker has yet to acknowledge (level-triggered control).

The state is, for each partition, the revision that the broker has to reach, and never a queue of
commands. However slow or dead the broker, its backlog is bounded by its partitions, and only the
newest state is sent. One command is in flight at a time. The first command, and the first after
each loss of the connection, is the full state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain, islice, takewhile
from typing import NamedTuple

from tidelog.errors import ErrorCode
from tidelog.inspection.state_reports import NOT_KNOWN, BrokerBacklog, PendingState, StateRequest
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause, Change
from tidelog_controller.policies.causes import change_id
from tidelog_runtime.replica_control import CommandResult, PartitionResult

MAX_PARTITIONS_PER_COMMAND = 2_000

FIRST_RETRY_MS = 100
MAX_RETRY_MS = 2_000
# The number of waiting partitions that a description names.
MAX_PENDING_NAMED = 10
ANYTHING = StateRequest()

# In the answer to a command that stops a replica, these mean that there is no such replica.
ALREADY_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class _Required(NamedTuple):
    revision: int
    since_ms: int  # start of the time without an acknowledgement


class _InFlight(NamedTuple):
    id: int
    partitions: Mapping[tuple[str, int], TopicPartition]  # by topic id and partition
    required: Mapping[TopicPartition, int]  # the revisions at the time of sending
    stops: bool
    full_state: bool


class _Deferred(NamedTuple):
    retry_at_ms: int
    failures: int
    problem: str


def retry_delay_ms(failures: int) -> int:
    return min(FIRST_RETRY_MS << min(failures, MAX_RETRY_MS.bit_length()), MAX_RETRY_MS)


class BrokerControl:
    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._full_state_due = True
        self._full_state_size = 0
        self._full_state_cause = Cause.NONE
        self._full_state_change: Change | None = None  # until it is acknowledged
        self._known_since_ms: int | None = None
        self._overdue_reported = False
        # In the order in which they became due: the first has waited longest.
        self._required: dict[TopicPartition, _Required] = {}
        self._first: TopicPartition | None = None  # None: unknown
        # Those that are neither deferred nor held back, in the order in which they became so.
        self._sendable: dict[TopicPartition, None] = {}
        self._by_topic: Counter[str] = Counter()
        # The newest revision of each partition that has a key, and of all of them.
        self._acknowledged: dict[TopicPartition, int] = {}
        self._newest_acknowledged = 0
        self._newest_required = 0
        # While anything is required: since when, how often a partition advanced, and when it last
        # did.
        self._working_since_ms = 0
        self._moved = 0
        self._moved_at_ms = 0
        self._deferred: dict[TopicPartition, _Deferred] = {}  # rejected individually
        # Partitions that are held back, each until its time, earliest first; none is deferred.
        self._held_until_ms: dict[TopicPartition, int] = {}
        self._in_flight: _InFlight | None = None
        self._retry_at_ms = 0
        self._failures = 0
        self._problem = ""  # why the last command failed entirely

    def __len__(self) -> int:
        """The number of partitions whose state is not acknowledged."""
        return len(self._required)

    def waits_for(self, partition: TopicPartition) -> bool:
        return partition in self._required

    def has_answered(self, partition: TopicPartition) -> bool:
        """Whether the broker has acknowledged the newest state, or rejected it."""
        return partition not in self._required or partition in self._deferred

    def waiting(self) -> list[TopicPartition]:
        """The partitions whose state is not acknowledged."""
        return list(self._required)

    def waits_for_topic(self, topic: str) -> bool:
        return topic in self._by_topic

    def require(self, partition: TopicPartition, revision: int, now_ms: int) -> None:
        if not self._required:
            self._working_since_ms, self._moved = now_ms, 0
        self._newest_required = max(self._newest_required, revision)
        if self._known_since_ms is None:
            self._known_since_ms = now_ms
        held = self._required.get(partition)
        if held is None:
            self._by_topic[partition.topic] += 1
            self._required[partition] = _Required(revision, now_ms)
            self._sendable[partition] = None
        elif revision > held.revision:
            self._required[partition] = held._replace(revision=revision)
            # The rejected state was an older one.
            if self._deferred.pop(partition, None) is not None:
                self._sendable[partition] = None

    def hold(self, partition: TopicPartition, until_ms: int) -> None:
        """Holds the partition back until `until_ms` or `release`.

        A full state still includes it. Successive calls must not pass earlier times.
        """
        if partition in self._required and partition not in self._deferred:
            self._sendable.pop(partition, None)
            self._held_until_ms.pop(partition, None)
            self._held_until_ms[partition] = until_ms

    def release(self, partition: TopicPartition) -> None:
        if self._held_until_ms.pop(partition, None) is not None:
            self._sendable[partition] = None

    def forget(self, partition: TopicPartition) -> None:
        """Forgets a partition whose key is gone."""
        self._acknowledged.pop(partition, None)
        self._require_no_more(partition)

    def _require_no_more(self, partition: TopicPartition) -> None:
        if self._required.pop(partition, None) is None:
            return
        if partition == self._first:
            self._first = None
        self._sendable.pop(partition, None)
        self._deferred.pop(partition, None)
        self._held_until_ms.pop(partition, None)
        self._by_topic[partition.topic] -= 1
        if not self._by_topic[partition.topic]:
            del self._by_topic[partition.topic]
        if not self._required:
            self._overdue_reported = False
            # Revisions of forgotten partitions are no longer required.
            self._newest_required = self._newest_acknowledged

    def require_full_state(self, why: Cause) -> None:
        """Makes the next command a full state. The caller has to require all replicas as well.

        `why`: the cause, unless an earlier full state is not acknowledged.
        """
        self._full_state_due = True
        if self._full_state_change is None:
            self._full_state_cause = why

    def full_state_change(self, controller_epoch: int, command_id: int, wall_ms: int) -> Change:
        """The change of the next full state; a repeated full state keeps the first one's change."""
        if self._full_state_change is None:
            name = change_id(controller_epoch, f"full-{self.broker_id}-{command_id}")
            self._full_state_change = Change(name, self._full_state_cause, wall_ms)
        return self._full_state_change

    def is_ready(self, now_ms: int) -> bool:
        return self._in_flight is None and now_ms >= self._retry_at_ms

    @property
    def awaits_full_state(self) -> bool:
        """Whether the broker has not acknowledged the full state."""
        in_flight = self._in_flight is not None and self._in_flight.full_state
        return self._full_state_due or in_flight

    @property
    def full_state_due(self) -> bool:
        return self._full_state_due

    def due(
        self, is_stop: Callable[[TopicPartition], bool], now_ms: int
    ) -> tuple[bool, list[TopicPartition]]:
        """Returns whether the next command stops replicas, and the partitions that it names.

        The candidates are the first new partition and the first one to send again. The one that has
        waited longer decides the kind of command.
        """
        self._release_until(now_ms)
        again = [p for p, deferred in self._deferred.items() if deferred.retry_at_ms <= now_ms]
        firsts = [*islice(self._sendable, 1), *again[:1]]
        if not firsts:
            return False, []
        stops = is_stop(min(firsts, key=lambda p: self._required[p].since_ms))
        fitting = (p for p in chain(self._sendable, again) if is_stop(p) == stops)
        return stops, list(islice(fitting, MAX_PARTITIONS_PER_COMMAND))

    def _release_until(self, now_ms: int) -> None:
        over = takewhile(lambda held: held[1] <= now_ms, self._held_until_ms.items())
        for partition, _ in list(over):
            self.release(partition)

    def sent(
        self,
        command_id: int,
        partitions: Mapping[tuple[str, int], TopicPartition],
        *,
        stops: bool,
        full_state: bool = False,
    ) -> None:
        required = {
            p: self._required[p].revision for p in partitions.values() if p in self._required
        }
        self._in_flight = _InFlight(command_id, partitions, required, stops, full_state)
        if full_state:
            self._full_state_due = False
            self._full_state_size = len(partitions)

    def answered(self, command_id: int, result: CommandResult, now_ms: int) -> list[TopicPartition]:
        """Returns the partitions that have reached their required revision.

        What the answer leaves out or rejects is sent again after a pause.
        """
        command = self._end(command_id)
        if command is None:
            return []
        if result.error is not None:
            self._fail(command, now_ms, result.error.message)
            return []
        if command.full_state:
            self._full_state_change = None
        self._failures = 0
        self._problem = ""
        done = []
        unanswered = dict(command.partitions)
        for answer in result.partitions:
            partition = unanswered.pop((answer.topic_id, answer.partition), None)
            if partition is None:
                continue
            if not _is_done(answer, command.stops):
                self._defer(partition, now_ms, answer.error.message if answer.error else "")
            elif self._acknowledge(partition, answer, command, now_ms):
                done.append(partition)
        for partition in unanswered.values():
            self._defer(partition, now_ms, "the broker's answer omitted the partition")
        return done

    def lost(self, command_id: int, now_ms: int, reason: str) -> None:
        """Sends everything again: it is unknown whether the broker carried the command out."""
        command = self._end(command_id)
        if command is not None:
            self._fail(command, now_ms, reason)

    def wake_at_ms(self) -> int | None:
        """When there is something to send again; None: nothing waits for time to pass."""
        if self._in_flight is not None or not (self._required or self._full_state_due):
            return None
        if self._sendable or self._full_state_due:
            return self._retry_at_ms
        times = [deferred.retry_at_ms for deferred in self._deferred.values()]
        times += islice(self._held_until_ms.values(), 1)
        return max(self._retry_at_ms, min(times))

    def overdue_at_ms(self, timeout_ms: int) -> int | None:
        """When the longest wait becomes overdue; None: nothing waits, or it is reported already."""
        if self._overdue_reported or not self._required:
            return None
        return self._longest_since_ms() + timeout_ms

    def waiting_ms(self, now_ms: int) -> int:
        """The duration of the longest wait; 0: nothing waits."""
        if not self._required:
            return 0
        return max(0, now_ms - self._longest_since_ms())

    def _longest_since_ms(self) -> int:
        """The start of the longest wait.

        Cached, because it is needed after each event, and a dictionary finds its first entry by
        passing all removed ones before it.
        """
        if self._first is None:
            self._first = next(iter(self._required))
        return self._required[self._first].since_ms

    def emit_overdue(self) -> None:
        """Marks the wait as reported, until everything is acknowledged."""
        self._overdue_reported = True

    def first_waiting(self, limit: int) -> list[TopicPartition]:
        return list(islice(self._required, limit))

    def backlog(
        self, now_ms: int, timeout_ms: int, asked: StateRequest = ANYTHING
    ) -> BrokerBacklog:
        """Describes what the broker has yet to acknowledge.

        The partitions of the requested topic are named first, then those that the broker rejected.
        A state that was acknowledged, and is only sent again after a lost connection, is no
        backlog.
        """
        news = {
            partition: required
            for partition, required in self._required.items()
            if required.revision > self._acknowledged.get(partition, 0)
        }
        wanted = (p for p in news if _is_asked_for(p, asked)) if asked.topic else ()
        rejected = (p for p in self._deferred if p in news)
        oldest = next(iter(news.values()), None)
        waiting_ms = now_ms - oldest.since_ms if oldest is not None else 0
        names = dict.fromkeys(islice(wanted, MAX_PENDING_NAMED))
        names |= dict.fromkeys(islice(rejected, MAX_PENDING_NAMED))
        names |= dict.fromkeys(islice(news, MAX_PENDING_NAMED))
        pending = [
            PendingState(
                partition.topic,
                partition.partition,
                news[partition].revision,
                deferred.problem if (deferred := self._deferred.get(partition)) else "",
                self._acknowledged.get(partition, 0),
            )
            for partition in islice(names, MAX_PENDING_NAMED)
        ]
        return BrokerBacklog(
            self.broker_id,
            self.broker_epoch,
            len(news),
            waiting_ms,
            oldest is not None and waiting_ms >= timeout_ms,
            tuple(pending),
            self._problem,
            self._newest_required,
            self._newest_acknowledged,
            now_ms - self._working_since_ms if news else 0,
            self._moved if news else 0,
            now_ms - self._moved_at_ms if news and self._moved else 0,
            NOT_KNOWN if self._known_since_ms is None else now_ms - self._known_since_ms,
            self._full_state_size,
        )

    def _end(self, command_id: int) -> _InFlight | None:
        command = self._in_flight
        if command is None or command.id != command_id:
            return None
        self._in_flight = None
        return command

    def _fail(self, command: _InFlight, now_ms: int, problem: str) -> None:
        self._problem = problem
        self._full_state_due = self._full_state_due or command.full_state
        self._retry_at_ms = now_ms + retry_delay_ms(self._failures)
        self._failures += 1

    def _defer(self, partition: TopicPartition, now_ms: int, problem: str) -> None:
        if partition not in self._required:
            return
        self._sendable.pop(partition, None)
        self._held_until_ms.pop(partition, None)
        # A partition that is rejected again goes behind the others.
        held = self._deferred.pop(partition, None)
        failures = held.failures if held else 0
        self._deferred[partition] = _Deferred(
            now_ms + retry_delay_ms(failures), failures + 1, problem
        )

    def _acknowledge(
        self, partition: TopicPartition, answer: PartitionResult, command: _InFlight, now_ms: int
    ) -> bool:
        required = self._required.get(partition)
        if required is None:
            return False
        # A deleted replica has no revision of its own.
        gone = command.stops and answer.error is not None
        reached = command.required.get(partition, 0) if gone else answer.revision
        known = self._acknowledged.get(partition, 0)
        if reached > known:
            self._moved += 1
            self._moved_at_ms = now_ms
        self._acknowledged[partition] = max(known, reached)
        self._newest_acknowledged = max(self._newest_acknowledged, reached)
        if answer.revision >= required.revision or gone:
            self._require_no_more(partition)
            return True
        if required.revision == command.required.get(partition):
            # The requirement is unchanged: the broker did not reach it.
            self._defer(partition, now_ms, f"the broker is at revision {answer.revision}")
        return False


def _is_done(answer: PartitionResult, stops: bool) -> bool:
    return answer.error is None or (stops and answer.error.code in ALREADY_GONE)


def _is_asked_for(partition: TopicPartition, asked: StateRequest) -> bool:
    return partition.topic == asked.topic and asked.partition in (None, partition.partition)
