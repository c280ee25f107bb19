"""Rules for replicas, checked against what each holds and what the store has accepted.

`ReplicaRules` observes every append and cut, and checks a replica after the step in which it
changed. It keeps what was committed: what was below the high watermark of any leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from simulation.partition_id import PartitionId
from simulation.replicas import Committed, Loss, Owner, Replica, ReplicaState, where
from simulation.shadow_logs import Entry, ShadowLog, common_end, first_difference
from simulation.store_rules import NEWEST_BEFORE_LONGEST, StoreRules
from simulation.violation import Violation
from tidelog.model import NO_EPOCH, NO_PRODUCER_ID, BatchHeader
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member


class ReplicaRules:
    def __init__(self, store: StoreRules, on_loss: Callable[[Loss], None]) -> None:
        self._store = store
        self._on_loss = on_loss
        self.replicas: dict[tuple[int, PartitionId], Replica] = {}
        self.committed: dict[PartitionId, Committed] = {}
        self.cuts = 0  # of records, by running brokers
        self._leaders: dict[tuple[PartitionId, int], str] = {}
        # Replicas of topics that are being deleted, as they were: their leader may not know of the
        # deletion yet, and counts what they have reported to it.
        self._deleted: dict[tuple[int, PartitionId], Replica] = {}
        # Likewise those that moves have left, for leaders of epochs before that one.
        self._left: dict[tuple[int, PartitionId], tuple[int, Replica]] = {}
        store.on_joined = self._joined
        store.on_added_again = self._added_again
        store.on_other_machine = self._missed_changes
        # What was committed in partitions that were removed and added again.
        self._before_removal: dict[PartitionId, list[Committed]] = {}

    def of(self, machine_id: int, partition: PartitionId, broker_id: int | None = None) -> Replica:
        """Returns a replica of a machine. `broker_id`: if it is not that of the machine."""
        key = (machine_id, partition)
        replica = self.replicas.get(key)
        if replica is None:
            own = machine_id if broker_id is None else broker_id
            replica = self.replicas[key] = Replica(own, partition, machine_id)
        return replica

    def committed_of(self, partition: PartitionId) -> Committed:
        committed = self.committed.get(partition)
        if committed is None:
            committed = self.committed[partition] = Committed()
        return committed

    def _added_again(self, partition: PartitionId) -> None:
        """Forgets the removed partition, which does not count for the new one."""
        former = self.committed.pop(partition, None)
        if former is not None:
            self._before_removal.setdefault(partition, []).append(former)
        for replicas in (self._deleted, self._left):
            for key in [key for key in replicas if key[1] == partition]:
                del replicas[key]

    def _missed_changes(self, machine_id: int) -> None:
        """Notes that another machine was the broker before: this one missed its changes.

        Its process may have been paused meanwhile, so that its logs were never opened again.
        """
        for replica in self.replicas.values():
            if replica.machine_id == machine_id:
                self.contents_replaced(replica)

    # -- what happens to logs ------------------------------------------------------------

    def opened(
        self,
        replica: Replica,
        owner: Owner,
        start: int,
        found: Sequence[Entry] | int,
        *,
        lost: bool,
    ) -> None:
        """Notes that a log was opened, and recovered if needed.

        - `found`: its end, if it is known to hold a prefix of what it held, else what was read
        - `lost`: its machine has lost data since it was last open, or its disk failed
        """
        before = replica.log.end
        replica.owner = owner
        replica.leading = None
        replica.high_watermark = -1
        end = found if isinstance(found, int) else max((e.next_offset for e in found), default=0)
        if not lost and end != before:
            raise Violation(
                "written_records_lost",
                f"the log ended at {before} and was opened with {end}, though its machine "
                "lost nothing",
                **where(replica),
            )
        replica.durable.cut(end)
        if lost:
            replica.producer_epochs.clear()
        if isinstance(found, int):
            replica.log.cut(found)
            replica.log.forget_below(start)
            replica.verified = min(replica.verified, found)
        else:
            replica.log = ShadowLog(start)
            for entry in found:
                replica.log.add(entry)
            replica.verified = start

    def contents_replaced(self, replica: Replica) -> None:
        """Notes older contents, perhaps from before an unclean election or a removal."""
        replica.suspect = True

    def before_cut(self, replica: Replica, offset: int) -> None:
        """Checks a cut to `offset` that a running broker is about to make."""
        if replica.leading is not None:
            raise Violation(
                "leader_cut_its_log", f"it leads and cuts to {offset}", **where(replica)
            )
        committed = self.committed_of(replica.partition).log
        agreed = common_end(replica.log, committed)
        if offset < agreed and self._is_member_now(replica):
            raise Violation(
                "member_cut_committed",
                f"a member of the ISR cuts to {offset}; {agreed} is committed and in its log",
                **where(replica),
            )

    def before_reset(self, replica: Replica, offset: int) -> None:
        """Checks a reset to `offset`. What others have deleted as too old is no loss."""
        starts = (o.log.start for (_, p), o in self.replicas.items() if p == replica.partition)
        is_old = offset <= max(starts)
        self.before_cut(replica, offset if is_old else min(offset, replica.log.start))

    def cut(self, replica: Replica, offset: int) -> None:
        self.cuts += offset < replica.log.end
        replica.log.cut(offset)
        replica.durable.cut(offset)
        replica.producer_epochs.clear()
        replica.verified = min(replica.verified, offset)

    def reset(self, replica: Replica, offset: int) -> None:
        replica.log.reset(offset)
        replica.durable.reset(offset)
        replica.producer_epochs.clear()
        replica.verified = offset

    def appended(self, replica: Replica, headers: Iterable[BatchHeader]) -> None:
        """Checks that no producer's epoch falls within a log: a newer one fences all before it."""
        for header in headers:
            replica.log.add(Entry.of(header))
            producer_id, epoch = header.producer_id, header.producer_epoch
            newest = replica.producer_epochs.get(producer_id, epoch)
            if producer_id != NO_PRODUCER_ID and epoch < newest:
                raise Violation(
                    "producer_epoch_fell",
                    f"producer {producer_id} wrote offset {header.base_offset} in epoch {epoch} "
                    f"after epoch {newest}",
                    **where(replica),
                )
            replica.producer_epochs[producer_id] = epoch

    def start_moved(self, replica: Replica, start: int) -> None:
        """Checks a deletion by retention below `start`, which stays below what is committed."""
        replica.log.forget_below(start)
        replica.durable.forget_below(start)
        committed = self.committed_of(replica.partition)
        if start > committed.log.end:
            raise Violation(
                "deleted_above_committed",
                f"the log begins at {start}, and leaders have committed up to {committed.log.end}",
                **where(replica),
            )

    def removed(self, replica: Replica) -> None:
        """Notes that a running broker has set the directory aside or deleted it."""
        key = (replica.machine_id, replica.partition)
        self.replicas.pop(key, None)
        if self._store.is_being_deleted(replica.partition):
            self._deleted.setdefault(key, replica)
        elif self._is_member_now(replica):
            raise Violation(
                "member_removed", "a member of the ISR was set aside or deleted", **where(replica)
            )
        else:
            state = self._store.partitions[replica.partition].state
            self._left[key] = state.leader_epoch, replica

    def _joined(self, partition: PartitionId, member: Member) -> None:
        """Checks that a new member, or one that remains after a move, holds all that is committed.

        What an unclean election gives up is noted when its leader begins to lead.
        """
        if self._store.has_lost_data_since(member, partition) or self._store.is_superseded(member):
            return
        written = self._store.partitions.get(partition)
        known = self.committed_of(partition)
        if written is not None and written.state.unclean_leader_epoch > known.unclean_epoch:
            return
        committed = known.log
        log = self.of(self._store.machine_of(member), partition, member.broker_id).log
        if common_end(log, committed) < committed.end:
            raise Violation(
                "joined_without_committed",
                f"its log ends at {log.end}, and agrees up to {common_end(log, committed)} with "
                f"what is committed up to {committed.end}",
                broker=member.broker_id,
                topic_id=partition.topic_id,
                partition=partition.partition,
            )

    def _is_member_now(self, replica: Replica) -> bool:
        """Whether the store has it in the ISR in its present incarnation."""
        written = self._store.partitions.get(replica.partition)
        if written is None or replica.owner is None:
            return False
        return Member(replica.broker_id, replica.owner.broker_epoch) in written.state.isr

    # -- a replica after a step ------------------------------------------------------------

    def judge(self, replica: Replica, now: ReplicaState) -> None:
        """Checks a replica after a step. Raises `Violation`."""
        if now.high_watermark > replica.log.end:
            raise Violation(
                "high_watermark_beyond_log",
                f"{now.high_watermark}, and the log ends at {replica.log.end}",
                **where(replica),
            )
        state = now.state
        first_epochs = self._store.first_epochs.get(replica.partition, ())
        if state is not None and state.leader_epoch < max(first_epochs, default=NO_EPOCH):
            return  # of the removed partition of this number, whose end it does not know yet
        committed = self.committed_of(replica.partition)
        if now.leading is not None and state is not None:
            self._judge_leader(replica, now, state, committed)
        else:
            replica.leading = None
        replica.high_watermark = now.high_watermark
        if state is None or state.leader_epoch < committed.unclean_epoch:
            return
        if replica.suspect:
            replica.suspect = not self._agrees(replica, now.high_watermark, committed.log)
            return
        self._judge_content(replica, now.high_watermark, committed)

    def _judge_content(self, replica: Replica, high_watermark: int, committed: Committed) -> None:
        """Checks that a replica holds below its high watermark what was committed, nothing else."""
        if high_watermark > committed.log.end:
            raise Violation(
                "high_watermark_never_committed",
                f"{high_watermark}, and leaders have committed up to {committed.log.end}",
                **where(replica),
            )
        if high_watermark <= replica.verified:
            return
        self._verify(replica, committed.log, high_watermark)

    def _agrees(self, replica: Replica, high_watermark: int, committed: ShadowLog) -> bool:
        if high_watermark > committed.end:
            return False
        found = first_difference(replica.log, committed, replica.verified, high_watermark)
        return found is None

    def _verify(self, replica: Replica, committed: ShadowLog, up_to: int) -> None:
        different = first_difference(replica.log, committed, replica.verified, up_to)
        if different is not None:
            raise Violation(
                "logs_differ_below_high_watermark",
                f"{different} where {committed.entry_with(different.base_offset)} was committed",
                **where(replica),
            )
        replica.verified = max(replica.verified, up_to)

    def _judge_leader(
        self, replica: Replica, now: ReplicaState, state: LeaderAndIsr, committed: Committed
    ) -> None:
        if now.leading is not replica.leading:
            self._judge_new_leader(replica, now, state, committed)
        elif now.high_watermark < replica.high_watermark:
            raise Violation(
                "high_watermark_fell",
                f"from {replica.high_watermark} to {now.high_watermark} while leading",
                **where(replica),
            )
        if self._store.state_at(replica.partition, now.revision) != state:
            raise Violation(
                "state_never_written",
                f"the leader goes by a state of revision {now.revision} that the store has not",
                **where(replica),
                state=state,
            )
        is_news = now.high_watermark > replica.high_watermark or now.leading is not replica.leading
        replica.leading = now.leading
        # What is committed in an epoch before an unclean election was given up already.
        if is_news and state.leader_epoch >= committed.unclean_epoch:
            self._judge_commit(replica, now, state, committed)

    def _judge_new_leader(
        self, replica: Replica, now: ReplicaState, state: LeaderAndIsr, committed: Committed
    ) -> None:
        assert replica.owner is not None
        key = (replica.partition, state.leader_epoch)
        other = self._leaders.setdefault(key, replica.owner.name)
        if other != replica.owner.name:
            raise Violation(
                "two_leaders_in_one_epoch",
                f"{other} led in epoch {state.leader_epoch} already",
                **where(replica),
            )
        if state.leader_epoch < committed.unclean_epoch:
            return
        if state.unclean_leader_epoch > committed.unclean_epoch:
            self._take_loss(replica, state, committed)
            if replica.suspect:
                self._take_back(replica, now.high_watermark, state, committed)
        needed = committed.end_before(state.leader_epoch)
        if replica.log.end < needed:
            raise Violation(
                "leader_lacks_committed",
                f"its log ends at {replica.log.end}; up to {needed} was committed",
                **where(replica),
            )
        self._verify(replica, committed.log, needed)

    def _take_loss(self, replica: Replica, state: LeaderAndIsr, committed: Committed) -> None:
        committed.unclean_epoch = state.unclean_leader_epoch
        kept = common_end(replica.log, committed.log)
        self._judge_kept(replica, state, committed, kept)
        self._judge_newest_epoch(replica, state)
        self._on_loss(Loss(replica.partition, state.unclean_leader_epoch, kept, committed.log.end))
        committed.lost_fences += [
            (entry, state.unclean_leader_epoch)
            for entry in committed.log.from_offset(kept)
            if entry.is_fence
        ]
        committed.log.cut(kept)
        committed.ends = {epoch: min(end, kept) for epoch, end in committed.ends.items()}
        for other in self.replicas.values():
            if other.partition == replica.partition:
                other.verified = min(other.verified, kept)
                # A leader that kept what an earlier election gave up stays suspect.
                other.suspect = other.suspect or other is not replica

    def _take_back(
        self, replica: Replica, high_watermark: int, state: LeaderAndIsr, committed: Committed
    ) -> None:
        """Commits again what an unclean election gave up and a later one brought back."""
        for entry in list(replica.log.from_offset(committed.log.end)):
            if entry.next_offset > high_watermark:
                break
            committed.log.add(entry)
            committed.brought_back = True
        committed.ends[state.leader_epoch] = committed.log.end
        replica.verified = committed.log.end
        replica.suspect = False

    def _judge_kept(
        self, replica: Replica, state: LeaderAndIsr, committed: Committed, kept: int
    ) -> None:
        """Checks that an unclean election keeps as much as any last-known member has."""
        before = self._store.before_unclean.get((replica.partition, state.leader_epoch))
        if before is None or self._store.permits_loss(replica.partition, state.leader_epoch):
            return
        for member in (*before.isr, *before.eligible):
            machine_id = self._store.machine_of(member)
            if machine_id != self._store.present_machine(member.broker_id):
                continue  # what it held is gone
            other = self.replicas.get((machine_id, replica.partition))
            if other is None or not other.log.entries:
                continue  # retention has emptied it, so that it has nothing to keep
            if common_end(other.log, committed.log) > kept:
                raise Violation(
                    "recovery_gave_up_too_much",
                    f"it keeps what was committed up to {kept}, broker {member.broker_id} has it "
                    f"up to {common_end(other.log, committed.log)}",
                    **where(replica),
                )

    def _judge_newest_epoch(self, replica: Replica, state: LeaderAndIsr) -> None:
        """Checks that the log of the elected live replica ends in the newest leader epoch.

        Other logs may be longer: the tail of an older epoch was never committed.
        """
        key = (replica.partition, state.leader_epoch)
        if not replica.log.entries:
            return
        own = replica.log.entries[-1].leader_epoch
        epochs = []
        for member in self._store.live_before_unclean.get(key, ()):
            other = self.replicas.get((member.broker_id, replica.partition))
            if (
                other is None
                or not other.log.entries
                or other.owner is None
                or other.owner.broker_epoch != member.broker_epoch
                or (other.disk_log is not None and other.disk_log.failed is not None)
            ):
                continue
            epochs.append(other.log.entries[-1].leader_epoch)
            if epochs[-1] > own:
                raise Violation(
                    "older_epoch_elected",
                    f"its log ends in epoch {own}, that of broker {member.broker_id}, which was "
                    f"live, in epoch {epochs[-1]}",
                    **where(replica),
                )
        ends = {
            self.replicas[m.broker_id, replica.partition].log.end
            for m in self._store.live_before_unclean.get(key, ())
            if (m.broker_id, replica.partition) in self.replicas
        }
        if any(epoch < own for epoch in epochs) and max(ends, default=0) > replica.log.end:
            self._store.seen[NEWEST_BEFORE_LONGEST] += 1

    def _judge_commit(
        self, replica: Replica, now: ReplicaState, state: LeaderAndIsr, committed: Committed
    ) -> None:
        high_watermark = now.high_watermark
        self._verify(replica, committed.log, min(high_watermark, committed.log.end))
        if high_watermark <= committed.log.end:
            return
        if len(state.isr) < state.min_isr:
            raise Violation(
                "committed_below_min_isr",
                f"up to {high_watermark} with an ISR of {len(state.isr)}, min {state.min_isr}",
                **where(replica),
            )
        newest = self._store.last_state_of(replica.partition, state.leader_epoch)
        members = dict.fromkeys((*state.isr, *(newest.isr if newest else ())))
        for member in members:
            self._judge_member(replica, member, state.leader_epoch, high_watermark)
        for entry in list(replica.log.from_offset(committed.log.end)):
            if entry.next_offset > high_watermark:
                break
            committed.log.add(entry)
            committed.brought_back |= entry.leader_epoch < committed.unclean_epoch
        replica.verified = committed.log.end
        committed.ends[state.leader_epoch] = committed.log.end

    def _judge_member(
        self, leader: Replica, member: Member, leader_epoch: int, high_watermark: int
    ) -> None:
        store = self._store
        if store.has_lost_data_since(member, leader.partition) or store.is_superseded(member):
            return
        key = (store.machine_of(member), leader.partition)
        other = self._deleted.get(key) or self.replicas.get(key)
        left_in, as_it_was = self._left.get(key, (NO_EPOCH, None))
        if leader_epoch < left_in:
            other = as_it_was
        end = other.log.end if other is not None else 0
        if end < high_watermark:
            raise Violation(
                "committed_without_member",
                f"up to {high_watermark}; broker {member.broker_id} is in the ISR and ends at "
                f"{end}",
                **where(leader),
            )
        synced_end = other.synced_end if other is not None else 0
        if synced_end < high_watermark and self._store.is_synced(leader.partition):
            raise Violation(
                "committed_unsynced",
                f"up to {high_watermark}; broker {member.broker_id} is in the ISR and has synced "
                f"up to {synced_end}",
                **where(leader),
            )

    # -- what brokers report -----------------------------------------------------------------

    def judge_end(self, replica: Replica, leader_epoch: int, end: int) -> None:
        """Checks the committed end that a leader reports."""
        committed = self.committed_of(replica.partition)
        needed = committed.end_before(leader_epoch)
        if leader_epoch >= committed.unclean_epoch and end < needed:
            raise Violation(
                "end_went_back",
                f"it reports {end} as the committed end, and up to {needed} was committed before "
                f"its epoch {leader_epoch}",
                **where(replica),
            )

    # -- what clients received ---------------------------------------------------------------

    def committed_entry(self, partition: PartitionId, offset: int) -> Entry | None:
        committed = self.committed.get(partition)
        return committed.log.entry_with(offset) if committed is not None else None

    def was_committed(self, partition: PartitionId, offset: int, leader_epoch: int) -> bool:
        """Whether it was committed in this epoch, also before a removal of the partition."""
        known = [self.committed.get(partition), *self._before_removal.get(partition, ())]
        entries = [each.log.entry_with(offset) for each in known if each is not None]
        return any(entry is not None and entry.leader_epoch == leader_epoch for entry in entries)

    def fence_read(self, partition: PartitionId, offset: int, read_epoch: int) -> Entry | None:
        """Returns the fence at `offset` in the log in which `read_epoch` was read above it."""
        committed = self.committed.get(partition)
        if committed is None:
            return None
        entry = committed.log.entry_with(offset)
        if entry is not None and entry.is_fence and entry.leader_epoch <= read_epoch:
            return entry
        return next(
            (
                fence
                for fence, lost_in_epoch in committed.lost_fences
                if fence.base_offset == offset and fence.leader_epoch <= read_epoch < lost_in_epoch
            ),
            None,
        )
