"""Counts which guarded rules a run has exercised.

A rule counts when it took effect: a rejection was sent, production code logged a line, or the
store was written. Over many seeds every rule must occur; otherwise the simulator does not show
what it claims to show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from simulation.disk_watch import LEFT
from simulation.held_back import HELD_BACK, noting_held_back
from simulation.level_rules import ROSE
from simulation.move_rules import FOUND_BY_MOVE_RULES
from simulation.readers import RESUMED
from simulation.store import StoreAnswer
from simulation.store_rules import ADDED_AGAIN, NEWEST_BEFORE_LONGEST
from simulation.throttle_rules import MEMBER_UNBOUND
from simulation.told_losses import TOLD_TO_CLIENTS
from tidelog.errors import ErrorCode
from tidelog.state_changes.json_form import EVENT
from tidelog.v1 import admin_pb2, broker_pb2
from tidelog_broker.core.fetch_messages import NO_SESSION, ReplicaFetchResponse
from tidelog_runtime.metadata.store import TransactionResult
from tidelog_runtime.replica_control import CommandResult, DescribeReplicasResult

if TYPE_CHECKING:
    from simulation.invariants import Invariants
    from simulation.loop import SimProcess
    from simulation.world import World

# Log lines of the production code, and the rules that they show.
LOGGED = {
    "broker_id_taken": "id taken by another node",
    "duplicate_answered": "duplicate batch answered like its original",
    "isr_changes_wait_for_store": "ISR change without answer",
    "joiner_guard_failed": "joiner's guard failed",
    "late_answer_dropped": "late fetch answer dropped",
    "log_recovered": "log recovered",
    "metadata_rolled_back": "restored store not believed",
    "producers_expired": "silent producers forgotten",
}
# State changes, by kind and stage, and by cause where that is needed to identify the rule.
TOLD = {
    ("become_follower", "ignored", "stale_revision"): "decision that is not newer ignored",
    ("become_leader", "ignored", "stale_revision"): "decision that is not newer ignored",
    ("broker_fenced", "failed"): "removal of a registration that is gone",
    ("broker_fenced", "ignored"): "fast removals used up",
    ("broker_fenced", "requested"): "fast removal",
    ("broker_stalled", "completed"): "stalled leader's grant",
    ("broker_stopping", "failed"): "stopped before all was handed over",
    ("command_overdue", "completed"): "command overdue",
    ("connection_lost", "completed"): "connection lost, process alive",
    ("controller_stepped_down", "completed", ""): "controller deposed",
    ("delete", "completed", "stray"): "stray deleted after the last look at the store",
    ("delete", "ignored", "stale_revision"): "late StopReplica without effect",
    ("election", "completed", "leader_unreachable"): "leader deposed on reports",
    ("isr_shrink", "completed", "lag_bytes"): "left the ISR by bytes",
    ("registration_lost", "completed"): "registered again",
    ("replica_repaired", "completed"): "damaged log repaired",
    ("stop", "completed", "stray"): "stray set aside",
    ("stop", "ignored", "stale_revision"): "late StopReplica without effect",
    ("truncation", "completed", "no_longer_held"): "replica restarted at the leader's start",
}
DAMAGE_FOUND = {True: "damage found at a start", False: "damage found while running"}
# Rejections of one partition, by the method that was answered.
REFUSED = {
    ("replica_fetch", ErrorCode.FENCED_LEADER_EPOCH): "replica fetch fenced",
    ("replica_fetch", ErrorCode.UNKNOWN_LEADER_EPOCH): "replica fetch of an unknown epoch",
    ("replica_fetch", ErrorCode.STALE_BROKER_EPOCH): "replica fetch of a former life",
    ("replica_fetch", ErrorCode.NOT_LEADER): "replica fetch from a deposed leader",
    ("fetch", ErrorCode.UNKNOWN_LEADER_EPOCH): "consumer ahead of a deposed leader",
    ("fetch", ErrorCode.FENCED_LEADER_EPOCH): "consumer fetch fenced",
    ("fetch", ErrorCode.OFFSET_OUT_OF_RANGE): "consumer beyond the log",
    ("list_offsets", ErrorCode.OFFSET_NOT_AVAILABLE): "committed end not known yet",
    ("produce", ErrorCode.NOT_ENOUGH_REPLICAS): "produce below min ISR",
    ("produce", ErrorCode.LEADER_CHANGED): "produce through a change of leader",
    ("produce", ErrorCode.NOT_LEADER): "produce to a deposed leader",
    ("produce", ErrorCode.REQUEST_TIMED_OUT): "produce timed out",
    ("produce", ErrorCode.OUT_OF_ORDER_SEQUENCE): "batch out of order",
    ("produce", ErrorCode.DUPLICATE_SEQUENCE): "old sequence of a name rejected",
    ("produce", ErrorCode.FENCED_PRODUCER_EPOCH): "former holder of a name fenced",
    ("recover_partitions", ErrorCode.REQUEST_TIMED_OUT): "recovery waits for replicas",
    ("recover_partitions", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): "impossible consent rejected",
}
# Rejections of whole requests between services.
REFUSED_WHOLE = {
    ("leader_and_isr", ErrorCode.STALE_CONTROLLER_EPOCH): "command of a deposed controller",
    ("leader_and_isr", ErrorCode.STALE_BROKER_EPOCH): "command for a former life",
    ("stop_replica", ErrorCode.STALE_CONTROLLER_EPOCH): "StopReplica of a deposed controller",
    ("stop_replica", ErrorCode.STALE_BROKER_EPOCH): "StopReplica for a former life",
    ("describe_replicas", ErrorCode.STALE_CONTROLLER_EPOCH): "question of a deposed controller",
    ("describe_replicas", ErrorCode.STALE_BROKER_EPOCH): "question to a former life",
    ("replica_fetch", ErrorCode.STALE_BROKER_EPOCH): "fetch from a former life of the leader",
}
ANSWERED_DIVERGENCE = "divergence answered"
NO_SUCH_SESSION = "late fetch, or of a session that is over"
FENCED = "fence of a name answered"
PRODUCERS_COPIED = "who wrote below the log's start copied again"
CUT = "divergent records cut"
REWRITTEN = "segment written again after a failed fsync"
NO_ROOM = "write rejected for want of room"
LEADERLESS = "store rejected without a leader"
READ_AGAIN = "store read again after a compaction"
ISR_CONFLICT = "ISR change lost its comparison"
CONTROLLER_CONFLICT = "controller's write lost its comparison"
FOUND_BY_STORE_RULES = (
    "elected from the ISR",
    "elected from the eligible set",
    "elected after loss",
    "elected uncleanly as the topic allows",
    "left without a leader",
    "member passed over as not whole",
    "resigned",
    "recovered by consent",
    "recovered from live replicas by consent",
    "consent not needed after all",
    "intent finished by a successor",
    ADDED_AGAIN,
    NEWEST_BEFORE_LONGEST,
    ROSE,
    MEMBER_UNBOUND,
    RESUMED,
)
RULES = (
    *LOGGED.values(),
    *dict.fromkeys(TOLD.values()),
    *DAMAGE_FOUND.values(),
    *REFUSED.values(),
    *REFUSED_WHOLE.values(),
    ANSWERED_DIVERGENCE,
    NO_SUCH_SESSION,
    FENCED,
    PRODUCERS_COPIED,
    CUT,
    REWRITTEN,
    NO_ROOM,
    LEFT,
    LEADERLESS,
    READ_AGAIN,
    ISR_CONFLICT,
    CONTROLLER_CONFLICT,
    *FOUND_BY_STORE_RULES,
    *FOUND_BY_MOVE_RULES,
    *HELD_BACK,
    *TOLD_TO_CLIENTS,
)


def _rule_of_event(event: Mapping[str, Any]) -> str | None:
    kind, stage = event["kind"], event["stage"]
    if kind == "replica_damaged":
        return DAMAGE_FOUND[event["details"]["at_start"]]
    return TOLD.get((kind, stage)) or TOLD.get((kind, stage, event.get("cause", "")))


class Coverage:
    """Counts the rules of one world.

    - `noting`: returns a context in which held-back replicas and high watermarks are counted
    - `informed`: counts of what clients were informed of
    """

    def __init__(self, world: World, invariants: Invariants, informed: Counter[str]) -> None:
        self._rules: Counter[str] = Counter()
        self.noting = partial(noting_held_back, self._rules)
        self._invariants = invariants
        self._told = informed
        self._brokers = world.brokers
        self._etcd = world.etcd
        world.on_log(self._logged)
        world.on_answer(self._answered)

    @property
    def rules(self) -> dict[str, int]:
        found = self._rules + self._invariants.store.seen + self._told
        found[CUT] += self._invariants.replicas.cuts
        disks = [broker.machine.disk for broker in self._brokers.values()]
        found[REWRITTEN] += sum(disk.rewritten for disk in disks)
        found[NO_ROOM] += sum(disk.failed["space"] for disk in disks)
        found[LEADERLESS] += self._etcd.refused_leaderless
        found[READ_AGAIN] += self._etcd.read_anew
        return dict(found)

    def _logged(self, _process: SimProcess | None, event: dict[str, Any]) -> None:
        told = event["event"] == EVENT
        rule = _rule_of_event(event) if told else LOGGED.get(event["event"])
        if rule is not None:
            self._rules[rule] += 1

    def _answered(self, kind: str, source: str, _target: str, answer: object) -> None:
        if isinstance(answer, StoreAnswer):
            answer = answer.value
        if isinstance(answer, ReplicaFetchResponse):
            self._replica_fetched(answer)
        elif isinstance(answer, TransactionResult):
            if not answer.succeeded:
                self._conflict(source, answer)
        elif isinstance(answer, (CommandResult, DescribeReplicasResult)):
            if answer.error is not None:
                self._rejected_entirely(kind, answer.error.code)
        elif isinstance(answer, broker_pb2.DescribeProducersResponse):
            # Only the next holder of a name sends this request, and has a fence appended.
            self._rules[FENCED] += sum(not p.HasField("error") for p in answer.partitions)
        elif isinstance(answer, _CLIENT_ANSWERS):
            errors = [p.error for p in answer.partitions if p.HasField("error")]
            if isinstance(answer, admin_pb2.RecoverPartitionsResponse) and answer.HasField("error"):
                errors.append(answer.error)
            for error in errors:
                self._rejected(kind, ErrorCode(error.code))

    def _replica_fetched(self, answer: ReplicaFetchResponse) -> None:
        if answer.error is not None:
            self._rejected_entirely("replica_fetch", answer.error.code)
        elif answer.session_id == NO_SESSION and not answer.results:
            self._rules[NO_SUCH_SESSION] += 1
        for result in answer.results:
            if result.error is not None:
                self._rejected("replica_fetch", result.error.code)
            elif result.answer is not None and result.answer.diverging is not None:
                self._rules[ANSWERED_DIVERGENCE] += 1
            if result.answer is not None and result.answer.producers is not None:
                self._rules[PRODUCERS_COPIED] += 1

    def _conflict(self, source: str, result: TransactionResult) -> None:
        if any(key.endswith("leaderAndISR") for key in result.current):
            by_broker = source.startswith("broker")
            self._rules[ISR_CONFLICT if by_broker else CONTROLLER_CONFLICT] += 1

    def _rejected(self, kind: str, code: ErrorCode) -> None:
        rule = REFUSED.get((kind, code))
        if rule is not None:
            self._rules[rule] += 1

    def _rejected_entirely(self, kind: str, code: ErrorCode) -> None:
        rule = REFUSED_WHOLE.get((kind, code))
        if rule is not None:
            self._rules[rule] += 1


_CLIENT_ANSWERS = (
    admin_pb2.RecoverPartitionsResponse,
    broker_pb2.ProduceResponse,
    broker_pb2.FetchResponse,
    broker_pb2.ListOffsetsResponse,
)


def never_met(counts: Mapping[str, int]) -> list[str]:
    """Returns the rules, and kinds of faults with an effect, that did not occur.

    160 seeds or more leave none; `stories` produce what chance seldom does.
    """
    return [name for name, count in counts.items() if not count]
