"""Rules for writes of the metadata store, checked write by write, in their order.

They are derived independently from "Metadata" in docs/internals/protocol.md and from
rules `registrations-are-only-created`, `losses-remembered-across-incarnations`,
`every-write-sets-eligible-set`, `unanswered-isr-change-is-pending`, `damaged-replica-resigns-first`
and `stopping-broker-does-not-rejoin`. They call none of production's own functions: a mistake there
must show here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from simulation.data_losses import DataLosses
from simulation.move_rules import is_end, judge_step
from simulation.partition_id import PartitionId
from simulation.twins import machine_at
from simulation.violation import Violation
from simulation.written_states import brief, is_resignation, judge_alone, violation_of
from tidelog.model import NO_EPOCH, NO_LEADER, TopicPartition
from tidelog_runtime.metadata.keys import (
    BrokerKey,
    ControllerEpochKey,
    Keys,
    PartitionKey,
    RecoveryKey,
    TopicDeletionKey,
    TopicKey,
)
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    RUNNING,
    STOPPING,
    BrokerRegistration,
    LeaderAndIsr,
    Member,
    RecoveryConsent,
    TopicEntry,
    decode_broker,
    decode_leader_and_isr,
    decode_recovery_consent,
    decode_topic,
)
from tidelog_runtime.metadata.store import Changed, KeyValue

SYNCED = "synced"
MANUAL = "manual"
ADDED_AGAIN = "removed partition added again"
NEWEST_BEFORE_LONGEST = "newest epoch elected before a longer log"


class Registered(NamedTuple):
    registration: BrokerRegistration
    broker_epoch: int


class Written(NamedTuple):
    name: TopicPartition
    state: LeaderAndIsr
    revision: int


class StoreRules:
    """Checks every write. `data_losses`: those of all machines so far."""

    def __init__(self, keys: Keys, data_losses: DataLosses) -> None:
        self._keys = keys
        self._intents = f"{keys.root}admin/"
        self._data_losses = data_losses
        self._controller_epoch = 0
        self._losses_at: dict[Member, int] = {}  # how many, at each registration
        self._lives: dict[Member, BrokerRegistration] = {}  # as last written
        self.registered: dict[int, Registered] = {}
        self._away_since: dict[int, int] = {}  # revisions at which registrations ended
        self._consents: dict[TopicPartition, RecoveryConsent] = {}
        self.topics: dict[str, TopicEntry] = {}
        self.lives: dict[str, list[str]] = {}  # topic ids of each name, in their order
        self.deletions: set[str] = set()
        self.partitions: dict[PartitionId, Written] = {}
        self.on_joined: Callable[[PartitionId, Member], None] = lambda *_: None
        # Called when a removed partition has been added again under its topic's id.
        self.on_added_again: Callable[[PartitionId], None] = lambda _: None
        self.on_other_machine: Callable[[int], None] = lambda _: None  # it is the broker now
        # By partition: the leader epochs with which it began each time that it was added again.
        self.first_epochs: dict[PartitionId, list[int]] = {}
        self._last_epoch: dict[PartitionId, int] = {}  # of removed partitions
        # The state before an unclean election, by its leader epoch.
        self.before_unclean: dict[tuple[PartitionId, int], LeaderAndIsr] = {}
        # The replicas that ran before it, if any live replica could be elected.
        self.live_before_unclean: dict[tuple[PartitionId, int], tuple[Member, ...]] = {}
        self._given_up: set[tuple[PartitionId, int]] = set()  # by consent, of leader epochs
        self.seen: Counter[str] = Counter()  # what happened, for `Coverage`
        self._reign_of_intent: dict[str, int] = {}
        self._history: dict[PartitionId, dict[int, LeaderAndIsr]] = {}
        self._last_of_epoch: dict[tuple[PartitionId, int], LeaderAndIsr] = {}
        self._ids: dict[TopicPartition, PartitionId] = {}

    # -- the present state -------------------------------------------------------------

    def state_at(self, partition: PartitionId, revision: int) -> LeaderAndIsr | None:
        """Returns the state that was written at this very revision."""
        return self._history.get(partition, {}).get(revision)

    def last_state_of(self, partition: PartitionId, leader_epoch: int) -> LeaderAndIsr | None:
        """Returns the newest state of this epoch that the store has, or had."""
        return self._last_of_epoch.get((partition, leader_epoch))

    def has_lost_data_since(self, member: Member, partition: PartitionId) -> bool:
        """Whether its replica may have lost data since it registered; True if it never did."""
        before = self._losses_at.get(member)
        machine_id = self.machine_of(member)
        return before is None or self._data_losses.last_of(machine_id, partition) > before

    def is_superseded(self, member: Member) -> bool:
        """Whether another directory, not intact, registered later: the member is gone for good."""
        return any(
            life.broker_id == member.broker_id
            and life.broker_epoch > member.broker_epoch
            and (registration.whole_since or life.broker_epoch) > member.broker_epoch
            and self.machine_of(life) != self.machine_of(member)
            for life, registration in self._lives.items()
        )

    def present_machine(self, broker_id: int) -> int:
        """Returns the machine on which the broker is registered now, or its own one."""
        live = self.registered.get(broker_id)
        return broker_id if live is None else machine_at(broker_id, live.registration.address)

    def machine_of(self, member: Member) -> int:
        """Returns the machine on which the broker ran in that incarnation."""
        registration = self._lives.get(member)
        if registration is None:
            return member.broker_id
        return machine_at(member.broker_id, registration.address)

    def is_being_deleted(self, partition: PartitionId) -> bool:
        written = self.partitions.get(partition)
        if written is None or written.name.topic in self.deletions:
            return True
        topic = self.topics.get(written.name.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return True
        # It is being removed from a topic that stays.
        return partition.partition >= topic.partitions

    # -- writes ------------------------------------------------------------------------

    def absorb(self, changes: Sequence[Changed]) -> None:
        """Checks changes in the order of their revisions. Raises `Violation`."""
        for revision, group in groupby(changes, key=lambda change: change.revision):
            of_partitions: list[tuple[TopicPartition, KeyValue | None]] = []
            of_consents: list[tuple[TopicPartition, KeyValue | None]] = []
            for key, value, _ in group:
                if key.startswith(self._intents):
                    self._intent_changed(key, value)
                match self._keys.parse(key):
                    case PartitionKey(partition):
                        of_partitions.append((partition, value))
                    case BrokerKey(broker_id):
                        self._broker_changed(broker_id, value, revision)
                    case RecoveryKey(partition):
                        of_consents.append((partition, value))
                    case TopicKey(topic):
                        self._topic_changed(topic, value)
                    case TopicDeletionKey(topic):
                        (self.deletions.discard if value is None else self.deletions.add)(topic)
                    case ControllerEpochKey():
                        self._controller_epoch_changed(value)
                    case _:
                        pass
            for partition, value in of_partitions:
                self._partition_changed(partition, value, revision)
            for partition, value in of_consents:
                self._consent_changed(partition, value)

    def _intent_changed(self, key: str, value: KeyValue | None) -> None:
        if value is not None:
            self._reign_of_intent.setdefault(key, self._controller_epoch)
        elif self._reign_of_intent.pop(key, self._controller_epoch) < self._controller_epoch:
            self.seen["intent finished by a successor"] += 1

    def _consent_changed(self, name: TopicPartition, value: KeyValue | None) -> None:
        """Checks that a consent is for a partition without a leader; an election uses it up."""
        if value is None:
            if self._consents.pop(name, None) is not None:
                self.seen["consent not needed after all"] += 1
            return
        consent = decode_recovery_consent(value.value)
        found = self.partitions.get(PartitionId(consent.topic_id, name.partition))
        if found is None or found.state.leader != NO_LEADER:
            raise Violation(
                "consent_to_led_partition",
                f"{name} is {brief(found.state) if found else 'not there'}",
                partition=str(name),
            )
        self._consents[name] = consent

    def _topic_changed(self, topic: str, value: KeyValue | None) -> None:
        if value is None:
            self.topics.pop(topic, None)
        else:
            entry = self.topics[topic] = decode_topic(value.value)
            lives = self.lives.setdefault(topic, [])
            if entry.topic_id not in lives:
                lives.append(entry.topic_id)

    def _controller_epoch_changed(self, value: KeyValue | None) -> None:
        epoch = 0 if value is None else int(value.value)
        if epoch <= self._controller_epoch:
            raise Violation(
                "controller_epoch_fell",
                "an epoch was given twice",
                before=self._controller_epoch,
                now=epoch,
            )
        self._controller_epoch = epoch

    def _broker_changed(self, broker_id: int, value: KeyValue | None, revision: int) -> None:
        if value is None:
            self.registered.pop(broker_id, None)
            self._away_since[broker_id] = revision
            return
        new = Registered(decode_broker(value.value), value.create_revision)
        present = self.registered.get(broker_id)
        if (
            present is not None
            and present.broker_epoch == new.broker_epoch
            and (new.registration.state != STOPPING or present.registration.state != RUNNING)
            and value.mod_revision != value.create_revision
        ):
            raise Violation(
                "registration_overwritten",
                "a registration is only created, and rewritten once, as stopping",
                broker=broker_id,
                broker_epoch=new.broker_epoch,
            )
        self.registered[broker_id] = new
        life = Member(broker_id, new.broker_epoch)
        former = [other for other in self._lives if other.broker_id == broker_id]
        self._lives[life] = new.registration
        if life not in self._losses_at:
            self._data_losses.registered(self.machine_of(life))
            self._losses_at[life] = self._data_losses.count
            if former and self.machine_of(max(former)) != self.machine_of(life):
                self.on_other_machine(self.machine_of(life))

    def _partition_changed(
        self, name: TopicPartition, value: KeyValue | None, revision: int
    ) -> None:
        if value is None:
            gone = self._ids.pop(name, None)
            if gone is not None:
                removed = self.partitions.pop(gone, None)
                if removed is not None:
                    self._last_epoch[gone] = removed.state.leader_epoch
            return
        new = decode_leader_and_isr(value.value)
        partition = PartitionId(new.topic_id, name.partition)
        present = self.partitions.get(partition)
        judge_alone(partition, new)
        if present is not None:
            self._judge(partition, present.state, new)
        elif partition in self._last_epoch:
            self._judge_added_again(partition, self._last_epoch.pop(partition), new)
        former = self._ids.get(name)
        if former is not None and former != partition:
            self.partitions.pop(former, None)
        self._ids[name] = partition
        self.partitions[partition] = Written(name, new, revision)
        self._history.setdefault(partition, {})[revision] = new
        self._last_of_epoch[partition, new.leader_epoch] = new

    def _judge_added_again(self, partition: PartitionId, last: int, new: LeaderAndIsr) -> None:
        """Checks the first epoch: those that knew the removed partition ignore older epochs."""
        self.seen[ADDED_AGAIN] += 1
        if new.leader_epoch <= last:
            raise violation_of(
                "epochs_begin_again",
                f"the removed partition of this number ended in epoch {last}",
                partition,
                None,
                new,
            )
        self.first_epochs.setdefault(partition, []).append(new.leader_epoch)
        self.on_added_again(partition)

    def _judge(self, partition: PartitionId, old: LeaderAndIsr, new: LeaderAndIsr) -> None:
        if new.leader_epoch < old.leader_epoch:
            raise violation_of("leader_epoch_fell", "it only grows", partition, old, new)
        if new.unclean_leader_epoch < old.unclean_leader_epoch:
            raise violation_of("unclean_mark_fell", "it only grows", partition, old, new)
        if new.moving != old.moving or new.replicas != old.replicas:
            self._judge_move(partition, old, new)
        resigned = is_resignation(old, new) and not is_end(old, new)
        if new.leader_epoch == old.leader_epoch or resigned:
            self._judge_isr_change(partition, old, new)
        else:
            self._judge_election(partition, old, new)
        if new.min_isr == old.min_isr and new.replicas == old.replicas:
            self._judge_eligible(partition, old, new)

    def _judge_move(self, partition: PartitionId, old: LeaderAndIsr, new: LeaderAndIsr) -> None:
        if self.is_being_deleted(partition) and not new.isr:
            return
        broken = judge_step(old, new, self.config_of(partition), self.seen)
        if broken is not None:
            raise violation_of(broken.name, broken.why, partition, old, new)
        if is_end(old, new):
            # Replicas that leave are deleted: those that stay have to hold what they held.
            for member in new.isr:
                self.on_joined(partition, member)

    def _judge_isr_change(
        self, partition: PartitionId, old: LeaderAndIsr, new: LeaderAndIsr
    ) -> None:
        if new.leader != old.leader:
            raise violation_of(
                "leader_changed_within_epoch", "every election takes an epoch", partition, old, new
            )
        lost = sum(member.broker_epoch == NOT_WHOLE for member in (*new.isr, *new.eligible))
        if lost > sum(member.broker_epoch == NOT_WHOLE for member in (*old.isr, *old.eligible)):
            self.seen["resigned"] += 1
        before = dict(old.isr)
        for broker_id, broker_epoch in new.isr:
            if before.get(broker_id) == broker_epoch or broker_epoch == NOT_WHOLE:
                continue
            if broker_id == new.leader:
                raise violation_of(
                    "leader_changed_within_epoch",
                    "another life of the leader needs another epoch",
                    partition,
                    old,
                    new,
                )
            live = self.registered.get(broker_id)
            if (
                live is None
                or live.broker_epoch != broker_epoch
                or live.registration.state != RUNNING
            ):
                raise violation_of(
                    "joiner_not_running",
                    f"broker {broker_id} joined the ISR in life {broker_epoch}, and is registered "
                    f"as {live}",
                    partition,
                    old,
                    new,
                )
            self.on_joined(partition, Member(broker_id, broker_epoch))

    def _judge_election(self, partition: PartitionId, old: LeaderAndIsr, new: LeaderAndIsr) -> None:
        if new.controller_epoch != self._controller_epoch:
            raise violation_of(
                "deposed_controller_wrote",
                f"the controller of epoch {self._controller_epoch} is active",
                partition,
                old,
                new,
            )
        if self._passes_over(partition, old, new):
            self.seen["member passed over as not whole"] += 1
        if new.leader == NO_LEADER:
            self.seen["left without a leader"] += 1
        elif new.unclean_leader_epoch == new.leader_epoch:
            self.seen["elected after loss"] += 1
            self.before_unclean[partition, new.leader_epoch] = old
            self._judge_unclean(partition, old, new)
        elif old.leader_epoch != NO_EPOCH:
            from_isr = any(member.broker_id == new.leader for member in old.isr)
            self.seen[f"elected from the {'ISR' if from_isr else 'eligible set'}"] += 1
            self._judge_clean(partition, old, new)

    def _passes_over(self, partition: PartitionId, old: LeaderAndIsr, new: LeaderAndIsr) -> bool:
        """Whether a running member would lead if it had not lost data."""
        if new.unclean_leader_epoch == new.leader_epoch:
            return False
        for members in (old.isr, old.eligible):
            epochs = dict(members)
            for broker_id in (b for b in old.replicas if b in epochs):
                if broker_id == new.leader:
                    return False
                live = self.registered.get(broker_id)
                if live is None or live.registration.state != RUNNING:
                    continue
                life = Member(broker_id, live.broker_epoch)
                admitted = epochs[broker_id]
                if admitted == NOT_WHOLE or not self._claims_whole(partition, life, admitted):
                    return True
        return False

    def _judge_clean(self, partition: PartitionId, old: LeaderAndIsr, new: LeaderAndIsr) -> None:
        known = {m.broker_id: m.broker_epoch for m in (*old.eligible, *old.isr)}
        admitted = known.get(new.leader, NOT_WHOLE)
        life = next(member for member in new.isr if member.broker_id == new.leader)
        if admitted == NOT_WHOLE or not self._claims_whole(partition, life, admitted):
            raise violation_of(
                "elected_not_whole",
                f"broker {new.leader} was admitted in life {admitted}, and elected in "
                f"{self._lives.get(life)}",
                partition,
                old,
                new,
            )
        self._judge_directory(partition, old, new, life, Member(new.leader, admitted))

    def _judge_directory(
        self,
        partition: PartitionId,
        old: LeaderAndIsr,
        new: LeaderAndIsr,
        elected: Member,
        admitted: Member,
    ) -> None:
        """Checks by `data_losses` that a clean leader has the directory of its admission."""
        directories = [
            self._data_losses.directory_at(self.machine_of(life), self._losses_at.get(life, 0))
            for life in (admitted, elected)
        ]
        if directories[0] == directories[1]:
            return
        moved = self.machine_of(admitted) != self.machine_of(elected)
        why = "it runs on another machine" if moved else "its directory is another one"
        raise violation_of(
            "elected_by_another_directory",
            f"broker {new.leader} was admitted in life {admitted.broker_epoch}; {why} since",
            partition,
            old,
            new,
        )

    def _claims_whole(self, partition: PartitionId, life: Member, admitted: int) -> bool:
        """Whether this incarnation's registration claims, or claimed at its end, to be intact."""
        registration = self._lives.get(life)
        if registration is None:
            return False
        claims = [registration.whole_since]
        if self.is_synced(partition):
            claims.append(registration.synced_whole_since)
        return any((claim or life.broker_epoch) <= admitted for claim in claims)

    def is_synced(self, partition: PartitionId) -> bool:
        return self.config_of(partition).get("durability") == SYNCED

    def permits_loss(self, partition: PartitionId, leader_epoch: int) -> bool:
        """Whether any live replica may be elected, by the topic's configuration or a consent."""
        return (
            self.config_of(partition).get("unclean_leader_election") == "true"
            or (partition, leader_epoch) in self._given_up
        )

    def config_of(self, partition: PartitionId) -> Mapping[str, str]:
        written = self.partitions.get(partition)
        topic = self.topics.get(written.name.topic) if written else None
        return topic.config if topic is not None else {}

    def _judge_unclean(self, partition: PartitionId, old: LeaderAndIsr, new: LeaderAndIsr) -> None:
        """Checks an unclean election.

        No last-known member could have been elected as clean, and none is away unless a loss is
        permitted. A topic that is recovered by hand needs a consent. A registration that begins
        or ends during the election is not known to it."""
        since = self.partitions[partition].revision
        self._judge_consent(partition, old, new)
        if self.permits_loss(partition, new.leader_epoch):
            self.live_before_unclean[partition, new.leader_epoch] = tuple(
                Member(broker_id, found.broker_epoch)
                for broker_id, found in self.registered.items()
                if broker_id in old.replicas
                and found.registration.state == RUNNING
                and found.broker_epoch < since
            )
        if self._is_by_config_alone(partition, old, new):
            self.seen["elected uncleanly as the topic allows"] += 1
        for member in (*old.isr, *old.eligible):
            live = self.registered.get(member.broker_id)
            if (
                live is not None
                and live.registration.state == RUNNING
                and member.broker_epoch != NOT_WHOLE
                and self._claims_whole(
                    partition, Member(member.broker_id, live.broker_epoch), member.broker_epoch
                )
                and live.broker_epoch < since
            ):
                raise violation_of(
                    "unclean_without_need",
                    f"broker {member.broker_id} is whole, running and was in sync",
                    partition,
                    old,
                    new,
                )
            is_away = live is None and self._away_since.get(member.broker_id, 0) < since
            if is_away and not self.permits_loss(partition, new.leader_epoch):
                raise violation_of(
                    "recovered_without_member",
                    f"broker {member.broker_id} was in sync and is away; no leader gave it up",
                    partition,
                    old,
                    new,
                )

    def _is_by_config_alone(
        self, partition: PartitionId, old: LeaderAndIsr, new: LeaderAndIsr
    ) -> bool:
        """Whether only the topic's configuration permits it."""
        if self.config_of(partition).get("unclean_leader_election") != "true":
            return False
        running = [b for b, r in self.registered.items() if r.registration.state == RUNNING]
        return (partition, new.leader_epoch) not in self._given_up and any(
            member.broker_id not in running for member in (*old.isr, *old.eligible)
        )

    def _judge_consent(self, partition: PartitionId, old: LeaderAndIsr, new: LeaderAndIsr) -> None:
        """Uses up the consent on which the election rests."""
        config = self.config_of(partition)
        consent = self._consents.pop(self.partitions[partition].name, None)
        if consent is not None and consent.topic_id == partition.topic_id:
            if not consent.from_live_replicas:
                self.seen["recovered by consent"] += 1
            else:
                self.seen["recovered from live replicas by consent"] += 1
                self._given_up.add((partition, new.leader_epoch))
        elif config.get("recovery") == MANUAL and config.get("unclean_leader_election") != "true":
            raise violation_of(
                "recovered_without_consent", "it is recovered by hand", partition, old, new
            )

    def _judge_eligible(self, partition: PartitionId, old: LeaderAndIsr, new: LeaderAndIsr) -> None:
        if self.is_being_deleted(partition) and not new.isr:
            return
        isr_ids = {m.broker_id for m in new.isr}
        unclean = new.leader != NO_LEADER and new.unclean_leader_epoch == new.leader_epoch
        if len(isr_ids) >= new.min_isr or (unclean and new.leader_epoch != old.leader_epoch):
            wanted: set[int] = set()
        else:
            wanted = {m.broker_id for m in (*old.eligible, *old.isr)} - isr_ids
        if {m.broker_id for m in new.eligible} != wanted:
            raise violation_of(
                "eligible_set",
                f"it follows from the ISR and its predecessor as {sorted(wanted)}",
                partition,
                old,
                new,
            )
