"""Admin requests for recovery, from their check to their reply.

Rule `best-last-known-log-leads`. A request writes durable consents, one for each
partition without a leader. An election uses up its consent in the same transaction, under any
controller. The handler detects that all partitions have a leader, or that the request's time is up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidelog.admin_messages import RecoveryChoice
from tidelog.errors import ErrorCode, TidelogError, unknown_partition, unknown_topic
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.policies.electability import is_running, last_known
from tidelog_controller.policies.leader_election import is_leader_registered
from tidelog_controller.requests.request_checks import (
    being_deleted,
    check_choices,
    check_revision,
    maybe_done,
    request_timeout_ms,
)
from tidelog_controller.state.admin_requests import Caller
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.events import RecoverPartitions
from tidelog_controller.state.metadata_records import (
    Consent,
    Partition,
    Topic,
)
from tidelog_controller.state.mutations import ConsentRemoval, RecoveryIntent
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.metadata.schema import RecoveryConsent

# Each consent takes two of a transaction's 128 guards, and its removal takes one.
MAX_CONSENTS_PER_INTENT = 60
MAX_CONSENTS_PER_REMOVAL = 100


@dataclass(slots=True)
class _Recovery:
    request_id: int
    topic: str
    consent: RecoveryConsent
    partitions: tuple[int, ...]
    choices: Mapping[int, RecoveryChoice]  # by partition: the requested leader
    deadline_ms: int
    caller: Caller
    intent: RecoveryIntent | None = None  # the last one written
    consented: set[int] = field(default_factory=set)  # with a consent in the store


class RecoveryAdmin:
    def __init__(self, context: Context, transactions: Transactions) -> None:
        self._context = context
        self._transactions = transactions
        self._recoveries: dict[int, _Recovery] = {}
        self._removal: ConsentRemoval | None = None

    def recover(self, request: RecoverPartitions, now_ms: int) -> list[Command]:
        """Rejects an invalid request, or begins it; `advance` does the rest."""
        try:
            topic = self._check(request)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        named = (*request.partitions, *(choice.partition for choice in request.choices))
        asked = named or range(topic.entry.partitions)
        partitions = sorted({p for p in asked if named or not self._is_led(request.topic, p)})
        self._recoveries[request.request_id] = _Recovery(
            request.request_id,
            request.topic,
            RecoveryConsent(topic.entry.topic_id, request.from_live_replicas, request.trace_id),
            tuple(partitions),
            {choice.partition: choice for choice in request.choices},
            now_ms + request_timeout_ms(request.timeout_ms),
            request.caller,
        )
        return []

    def advance(self, now_ms: int) -> list[Command]:
        """Advances waiting requests, and removes consents that are no longer valid."""
        commands: list[Command] = []
        for recovery in list(self._recoveries.values()):
            commands += self._advance(recovery, now_ms)
        commands += self._remove_spent()
        return commands

    def wake_at_ms(self) -> int | None:
        return min((r.deadline_ms for r in self._recoveries.values()), default=None)

    def _check(self, request: RecoverPartitions) -> Topic:
        topic = self._context.topics.get(request.topic)
        if topic is None:
            raise unknown_topic(request.topic)
        if request.topic in self._context.deletions:
            raise being_deleted(request.topic)
        count = topic.entry.partitions
        named = (*request.partitions, *(choice.partition for choice in request.choices))
        wrong = [p for p in named if not 0 <= p < count]
        if wrong:
            raise unknown_partition(request.topic, wrong[0], count)
        check_choices(self._context, request.topic, request.choices)
        return topic

    def _advance(self, recovery: _Recovery, now_ms: int) -> list[Command]:
        topic = self._context.topics.get(recovery.topic)
        begun = recovery.intent is not None
        if topic is None or topic.entry.topic_id != recovery.consent.topic_id:
            gone = maybe_done(unknown_topic(recovery.topic), begun=begun)
            return self._reply(recovery, AdminReply(gone))
        if recovery.topic in self._context.deletions:
            going = maybe_done(being_deleted(recovery.topic), begun=begun)
            return self._reply(recovery, AdminReply(going))
        conflicts = {p: self._conflict(recovery, p) for p in recovery.partitions}
        waiting = {
            p
            for p in recovery.partitions
            if not (conflicts.get(p) or self._is_led(recovery.topic, p))
        }
        if not waiting or now_ms >= recovery.deadline_ms:
            results = tuple(
                (p, self._not_yet(recovery, p) if p in waiting else conflicts.get(p))
                for p in recovery.partitions
            )
            return self._reply(recovery, AdminReply(None, partitions=results))
        if recovery.intent is not None and self._transactions.is_in_flight(recovery.intent):
            return []
        missing = self._without_consent(recovery, sorted(waiting))
        if not missing:
            return []
        consent = _consent(recovery, missing[0][0].partition)
        alike = [m for m in missing if _consent(recovery, m[0].partition) == consent]
        recovery.intent = RecoveryIntent(
            recovery.topic, topic.revision, consent, tuple(alike), recovery.caller
        )
        return [self._transactions.begin(recovery.intent)]

    def _reply(self, recovery: _Recovery, reply: AdminReply) -> list[Command]:
        del self._recoveries[recovery.request_id]
        return [Reply(recovery.request_id, reply)]

    def _without_consent(
        self, recovery: _Recovery, waiting: Iterable[int]
    ) -> list[tuple[TopicPartition, int, int]]:
        """The waiting partitions without a sufficient consent, with the revisions to compare.

        Only partitions that are known to have no leader: a consent is for an observed state, and
        not for a later one.
        """
        missing: list[tuple[TopicPartition, int, int]] = []
        for number in waiting:
            partition = TopicPartition(recovery.topic, number)
            held = self._context.partition(partition)
            if held is None or held.state.leader != NO_LEADER:
                continue
            if self._transactions.writes(partition) or self._is_malformed(partition):
                continue
            standing = self._context.consents.get(partition)
            if standing is None or not _covers(standing.entry, _consent(recovery, number)):
                consent_revision = standing.revision if standing else 0
                missing.append((partition, held.revision, consent_revision))
            if len(missing) == MAX_CONSENTS_PER_INTENT:
                break
        return missing

    def _conflict(self, recovery: _Recovery, number: int) -> TidelogError | None:
        """Returns why the request fails for this partition; None: it does not.

        A choice is for an observed state: it is invalid if the partition changed before the consent
        was written. Of two different consents the later one stays, and the earlier is not written
        again.
        """
        name, choice = TopicPartition(recovery.topic, number), recovery.choices.get(number)
        held, standing = self._context.partition(name), self._context.consents.get(name)
        if held is None or held.state.leader != NO_LEADER:
            return None
        if standing is not None and _covers(standing.entry, _consent(recovery, number)):
            recovery.consented.add(number)
            return None
        if standing is not None and number in recovery.consented:
            return TidelogError(
                ErrorCode.REVISION_CONFLICT,
                f"a later request started another recovery of {name}; check its result, and "
                "request the recovery again if needed",
            )
        if choice is None:
            return None
        try:
            check_revision(str(name), held.revision, choice.expected_revision)
        except TidelogError as error:
            return error
        return None

    def _is_led(self, topic: str, number: int) -> bool:
        held = self._context.partition(TopicPartition(topic, number))
        return held is not None and is_leader_registered(held.state, self._context.live)

    def _is_malformed(self, partition: TopicPartition) -> bool:
        keys = self._context.keys
        malformed = self._context.malformed
        return keys.recovery(partition) in malformed or keys.leader_and_isr(partition) in malformed

    # Consents that are no longer valid.

    def _remove_spent(self) -> list[Command]:
        if self._removal is not None and self._transactions.is_in_flight(self._removal):
            return []
        spent = [
            (partition, consent.revision)
            for partition, consent in self._context.consents.items()
            if self._is_spent(partition, consent)
        ]
        if not spent:
            return []
        self._removal = ConsentRemoval(tuple(spent[:MAX_CONSENTS_PER_REMOVAL]))
        return [self._transactions.begin(self._removal)]

    def _is_spent(self, partition: TopicPartition, consent: Consent) -> bool:
        """Whether its topic no longer exists, or the partition got a leader without it."""
        topic = self._context.topics.get(partition.topic)
        if topic is None or topic.entry.topic_id != consent.entry.topic_id:
            return self._context.keys.topic(partition.topic) not in self._context.malformed
        if partition.partition >= topic.entry.partitions:
            return True
        return not self._transactions.writes(partition) and self._is_led(*partition)

    # What a partition waits for.

    def _not_yet(self, recovery: _Recovery, number: int) -> TidelogError:
        partition = TopicPartition(recovery.topic, number)
        waits_for = self._waits_for(recovery, partition, self._context.partition(partition))
        return TidelogError(
            ErrorCode.REQUEST_TIMED_OUT, f"{partition} has no leader yet; it waits for {waits_for}"
        )

    def _waits_for(
        self, recovery: _Recovery, partition: TopicPartition, held: Partition | None
    ) -> str:
        live = self._context.live
        if held is None:
            return "enough running brokers for its replicas"
        if self._is_malformed(partition):
            return f"the repair of its metadata key: {self._context.keys.recovery(partition)}"
        choice = recovery.choices.get(partition.partition)
        if choice is not None:
            chosen = choice.broker_id
            return f"the chosen broker {chosen} to run and to report its log end offset"
        running = [b for b in held.state.replicas if is_running(b, live)]
        if not running:
            return f"any of its replicas {list(held.state.replicas)} to return"
        away = [b for b in last_known(held.state) if b not in running]
        if away and not recovery.consent.from_live_replicas:
            return (
                f"the replicas {away}, last known to be in sync; if they are lost permanently, "
                "consent to a recovery from live replicas"
            )
        return f"its replicas {running} to report their log end offsets"


def _consent(recovery: _Recovery, number: int) -> RecoveryConsent:
    choice = recovery.choices.get(number)
    return replace(recovery.consent, broker_id=choice.broker_id if choice else NO_LEADER)


def _covers(standing: RecoveryConsent, wanted: RecoveryConsent) -> bool:
    """Whether `standing` permits what `wanted` permits; a wider consent is never narrowed."""
    alike = (standing.topic_id, standing.broker_id) == (wanted.topic_id, wanted.broker_id)
    return alike and (standing.from_live_replicas or not wanted.from_live_replicas)
