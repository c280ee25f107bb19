"""One replica as leader: it takes states of the controller, leads, appends and is fetched from. How
it follows is in `replica`.

All code is synchronous. So nothing changes between a check and the act that depends on it. A
`PartitionListener` is informed of growth of the log, a new high watermark and lost leadership."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tidelog.errors import TidelogError
from tidelog.model import NO_EPOCH, NO_OFFSET, Acks, Batch, EpochEnd, TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Cause, Change
from tidelog_broker.partition import epochs, isr, refusals
from tidelog_broker.partition import high_watermark as hw
from tidelog_broker.partition.appending import LogEnd, prepare, prepare_fence
from tidelog_broker.partition.exchange import Appended, FetchAnswer, FetchPosition
from tidelog_broker.partition.isr import SessionTime
from tidelog_broker.partition.leading import Leading
from tidelog_broker.partition.listener import PartitionListener
from tidelog_broker.partition.producer_state import CommittedProducer
from tidelog_broker.partition.replica import Replica
from tidelog_broker.partition.replica_log import CachedBatches, ReplicaLog
from tidelog_runtime.metadata.schema import NOT_WHOLE, LeaderAndIsr


class Partition(Replica):
    """A replica that may lead. `lag_max_bytes` limits the lag of ISR members; None: no limit."""

    def __init__(
        self,
        name: TopicPartition,
        topic_id: str,
        broker_id: int,
        log: ReplicaLog,
        *,
        high_watermark: int,
        listener: PartitionListener,
    ) -> None:
        super().__init__(name, topic_id, broker_id, log, high_watermark=high_watermark)
        self.lag_max_bytes: int | None = None
        self._listener = listener

    # -- roles ---------------------------------------------------------------------

    def take(self, state: LeaderAndIsr, revision: int, *, broker_epoch: int, now_ms: int) -> bool:
        """Applies the state that the controller decided at `revision`; returns whether it is newer.
        An older one has no effect (rule `decisions-ordered-by-revision`).

        `broker_epoch` is this broker's incarnation. A state that makes a previous incarnation the
        leader is applied, but no replica leads by it (rule
        `losses-remembered-across-incarnations`)."""
        if revision <= self.revision:
            return False
        same_epoch = self.state is not None and self.state.leader_epoch == state.leader_epoch
        leader_broker_epoch = state.leader_broker_epoch
        leads = state.leader == self._broker_id and leader_broker_epoch == broker_epoch
        if not (same_epoch and leads and self.leading):
            self.stop_leading()
        if leader_broker_epoch != NOT_WHOLE:
            self.before_cut = None
        self.state = state
        self.revision = revision
        if leads and same_epoch and self.leading:
            self._epoch_goes_on(now_ms)
        elif leads and not same_epoch:
            # They share one value, which is immutable.
            unknown = isr.granted(now_ms)
            followers = {b: unknown for b in state.replicas if b != self._broker_id}
            self.leading = Leading(self.log.log_end_offset, followers)
            self._advance_high_watermark()
        return True

    def set_synced(self, synced: bool) -> bool:
        """Sets the durability of the topic; returns whether it has changed. The followers' progress
        counted by the old one, so that they have to fetch again."""
        changed = synced != self.synced
        if changed:
            self.synced = synced
            if self.leading is not None:
                self.leading.settle(self.log.log_end_offset)
                followers = self.leading.followers
                self.leading.followers = {b: isr.forgotten(p) for b, p in followers.items()}
                self._listener.followers_forgotten(self)
        self._sync_if_behind()
        return changed

    def log_synced(self) -> None:
        """Applies that more of the log is on disk."""
        self._advance_high_watermark()

    def _sync_if_behind(self) -> None:
        if self.synced and self.counted_end < self.log.log_end_offset:
            self._listener.sync_needed(self)

    def _log_grew(self) -> None:
        self._listener.log_grew(self)
        self._sync_if_behind()

    def stop_leading(self) -> None:
        """Ends leadership at once. States that this broker reads by itself may do so, too."""
        if self.leading is not None:
            self.leading = None
            self._listener.leadership_ended(self)

    def suspend(self) -> None:
        """Takes the replica out of service because its log is damaged: it neither leads nor
        follows, and applies no state, until `resume` (rule `damaged-replica-resigns-first`)."""
        self.in_service = False
        self._remember_extent()
        self.stop_leading()

    def resume(self, log: ReplicaLog, *, resigned_at: int = 0) -> None:
        """Continues with the reopened log, which may have been cut. It leads only in epochs from
        the revision of its resignation on: an earlier command, however late it arrives, assumes
        what the log held before."""
        self.revision = max(self.revision, resigned_at - 1)
        self.log = log
        self.high_watermark = max(
            log.log_start_offset, min(self.high_watermark, log.log_end_offset)
        )
        self.in_service = True
        self._sync_if_behind()

    def require_leading(self) -> Leading:
        """Raises NOT_LEADER or LEADER_NOT_AVAILABLE; a caller that knows addresses adds the
        hint."""
        if self.leading is None:
            raise refusals.not_leading(self.name, self.state, self._broker_id)
        return self.leading

    def _fence(self, known_epoch: int) -> None:
        code = epochs.fence(known_epoch, self.leader_epoch)
        if code is not None:
            raise TidelogError(
                code,
                f"{self.name} is in leader epoch {self.leader_epoch} on broker "
                f"{self._broker_id}, the request knows {known_epoch}",
            )

    # -- leading -------------------------------------------------------------------

    def append(self, batches: Sequence[Batch], acks: Acks, now_ms: int) -> Appended:
        """Appends checked batches as the leader, all or none. Batches that are in the log already
        are left out, and get their first answer again.

        Raises NOT_ENOUGH_REPLICAS before anything is written if acks=all cannot be kept now, and as
        `ProducerStates.check` does; errors of the log pass through."""
        prepared = prepare(self.log.producers.states, batches, self._end(now_ms))
        if prepared.stamped:
            if acks is Acks.ALL:
                self._require_min_isr(now_ms)
            self._append(prepared.stamped)
        return prepared.answer

    def fence_producer(self, producer_id: int, producer_epoch: int, now_ms: int) -> int:
        """Fences older epochs of a named producer. Once the high watermark reaches the returned
        offset, the fence and all that they wrote are committed.

        Raises FENCED_PRODUCER_EPOCH, and NOT_ENOUGH_REPLICAS as `append` does."""
        leading = self.require_leading()
        states = self.log.producers.states
        fence = prepare_fence(states, producer_id, producer_epoch, self._end(now_ms))
        if fence is not None:
            self._require_min_isr(now_ms)
            self._append([fence])
        entry = states.entry(producer_id)
        return max(leading.epoch_start, entry.end_offset if entry is not None else 0)

    def committed_producers(
        self, producer_ids: Collection[int], *, leaves_out_unknown: bool = False
    ) -> list[CommittedProducer]:
        """Returns the progress of these producers (no ids: all), ordered by id. Raises as
        `committed_end` and `ProducerStates.committed` do."""
        return self.log.producers.states.committed(
            producer_ids, self.committed_end(NO_EPOCH), leaves_out_unknown=leaves_out_unknown
        )

    def _end(self, now_ms: int) -> LogEnd:
        self.require_leading()
        return LogEnd(self.log.log_end_offset, self.leader_epoch, now_ms)

    def _require_min_isr(self, now_ms: int) -> None:
        assert self.state is not None
        if len(self.state.isr) < self.state.min_isr:
            leading = self.require_leading()
            leading.refused_below_min_isr += 1
            leading.last_refused_ms = now_ms
            raise refusals.not_enough_replicas(self.name, self.state)

    def _append(self, stamped: Sequence[Batch]) -> None:
        self.require_leading().settle(self.log.log_end_offset)
        self.log.append(stamped)
        self._log_grew()
        self._advance_high_watermark()

    def replica_fetch(
        self,
        follower: int,
        follower_broker_epoch: int,
        position: FetchPosition,
        now_ms: int,
        session: SessionTime | None = None,
    ) -> EpochEnd | None:
        """Applies a follower's fetch; returns where its log diverges from this one. With a
        `session` the fetch counts until `session_left`.

        Only a fetch in the leader's epoch, of the follower's latest incarnation, that agrees with
        the leader's log updates the follower's end offset (rule
        `fetch-counts-in-current-epoch`)."""
        leading = self.require_leading()
        self._fence(position.leader_epoch)
        progress = leading.followers.get(follower)
        if progress is None:
            raise refusals.no_replica(self.name, follower)
        if follower_broker_epoch < progress.broker_epoch:
            raise refusals.former_life(
                self.name, follower, follower_broker_epoch, progress.broker_epoch
            )
        diverging = epochs.divergence(
            last_fetched_epoch=position.last_fetched_epoch,
            fetch_offset=position.fetch_offset,
            log_start=self.log.log_start_offset,
            epoch_end=self.log.epoch_end,
        )
        if diverging is not None:
            return diverging
        self._require_fetchable(position)
        if position.needs_producers:
            # A follower that lacks producers could not lead, and does not count.
            return None
        leading.note(
            follower,
            isr.fetched(
                progress,
                broker_epoch=follower_broker_epoch,
                fetch_offset=hw.counted_end(
                    log_end=position.fetch_offset,
                    flushed_offset=position.flushed_offset,
                    synced=self.synced,
                ),
                leader_end=self.log.log_end_offset,
                now_ms=now_ms,
                session=session,
            ),
        )
        assert self.state is not None
        may_change = follower not in self.state.isr_ids or follower in self._too_far_behind()
        if may_change and leading.proposed is None:
            self._listener.isr_needs_evaluation(self)
        self._advance_high_watermark()
        return None

    def session_left(self, follower: int, session: SessionTime) -> None:
        """Ends the session for this partition: its requests no longer count for the follower."""
        if self.leading is not None:
            self.leading.session_left(follower, session, self.log.log_end_offset)

    def is_in_sync(self, broker_id: int) -> bool:
        return self.state is not None and broker_id in self.state.isr_ids

    def is_added_out_of_sync(self, broker_id: int) -> bool:
        """Returns whether a move adds the broker and nothing waits for it: no committed or proposed
        ISR has it."""
        if self.leading is None or self.state is None or broker_id not in self.state.adding:
            return False
        return broker_id not in isr.maximal(self.state, self.leading.proposed)

    def bytes_lacking(self) -> tuple[tuple[int, int], ...]:
        """Returns id and missing bytes of each replica that a move adds, as far as its leader
        knows. A replica that has not fetched yet lacks all."""
        if self.leading is None or self.state is None:
            return ()
        lacking = []
        for broker_id in self.state.adding:
            known = self.leading.followers.get(broker_id)
            end = NO_OFFSET if known is None else known.log_end_offset
            lacking.append((broker_id, self.log.bytes_from(max(end, self.log.log_start_offset))))
        return tuple(lacking)

    def log_start_moved(self) -> None:
        """Informs the listener that retention has advanced the log start."""
        self._listener.log_start_moved(self)

    def has_news(self, position: FetchPosition, told_high_watermark: int) -> bool:
        """Returns whether an answer to a follower at this position would have content: batches, a
        high watermark that it does not know, or an error."""
        return (
            self.leading is None
            or position.leader_epoch != self.leader_epoch
            or position.fetch_offset != self.log.log_end_offset
            or told_high_watermark != self.high_watermark
            or position.needs_producers
        )

    def read_for_follower(
        self, position: FetchPosition, max_bytes: int, *, waits: bool = True
    ) -> FetchAnswer:
        """Returns an answer; without `waits` only with batches that are in memory."""
        self.require_leading()
        self._fence(position.leader_epoch)
        # Retention may have passed it while the fetch waited.
        self._require_fetchable(position)
        answer = self._answer(())
        end = self.log.log_end_offset
        if max_bytes > 0 and position.fetch_offset < end:
            batches, cold = self._read(position.fetch_offset, max_bytes, end, waits=waits)
            answer = answer._replace(batches=batches, cold=cold)
        if position.needs_producers:
            answer = answer._replace(producers=self.log.producers.below_start())
        return answer

    def read_for_consumer(
        self, fetch_offset: int, known_epoch: int, max_bytes: int, *, waits: bool = True
    ) -> FetchAnswer:
        """Returns `bounds` and committed batches only; without `waits` only those in memory."""
        self.require_leading()
        self._fence(known_epoch)
        end = self._require_in_range(fetch_offset)
        answer = self.bounds()
        if fetch_offset >= self.high_watermark:
            return answer._replace(is_uncommitted=True) if fetch_offset < end else answer
        if max_bytes > 0:
            batches, cold = self._read(fetch_offset, max_bytes, self.high_watermark, waits=waits)
            answer = answer._replace(batches=refusals.readable(self.name, batches), cold=cold)
        return answer

    def _read(self, offset: int, max_bytes: int, up_to: int, *, waits: bool) -> CachedBatches:
        if waits:
            return CachedBatches(self.log.read(offset, max_bytes=max_bytes, up_to=up_to), None)
        return self.log.read_cached(offset, max_bytes=max_bytes, up_to=up_to)

    def committed_end(self, known_epoch: int) -> int:
        """Returns the offset after the last committed record. Raises OFFSET_NOT_AVAILABLE until a
        new leader's high watermark has reached the start of its epoch: it might be lower than the
        one a previous leader returned (KIP-207; rule `quiet-partition-reports-its-end`)."""
        leading = self.require_leading()
        self._fence(known_epoch)
        if not leading.knows_end(self.high_watermark):
            raise refusals.end_not_known(
                self.name, self.leader_epoch, self.high_watermark, leading.epoch_start
            )
        return self.high_watermark

    def first_batch_since(
        self, timestamp_ms: int, known_epoch: int, *, waits: bool = True
    ) -> Batch | None:
        """Returns the first batch with a committed record of this time or later; the caller opens
        it. Without `waits` it may raise `ColdDataError`."""
        end = self.committed_end(known_epoch)
        return self.log.offset_for_timestamp(timestamp_ms, end, waits=waits)

    def bounds(self) -> FetchAnswer:
        """Returns a consumer's answer without batches. Its high watermark is NO_OFFSET while
        `committed_end` is unknown."""
        answer = self._answer(())
        if self.require_leading().knows_end(self.high_watermark):
            return answer
        return answer._replace(high_watermark=NO_OFFSET)

    def _answer(self, batches: Sequence[Batch]) -> FetchAnswer:
        return FetchAnswer(
            self.high_watermark, self.log.log_start_offset, self.leader_epoch, batches
        )

    def _require_fetchable(self, position: FetchPosition) -> None:
        """Raises unless the position can be served. Producers are known for the log's start only,
        so that a follower that lacks them has to begin there."""
        start = self.log.log_start_offset
        if position.needs_producers and position.fetch_offset != start:
            raise refusals.producers_not_known(self.name, start, position.fetch_offset)
        self._require_in_range(position.fetch_offset)

    def _require_in_range(self, offset: int) -> int:
        """Returns the log's end."""
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if not start <= offset <= end:
            raise refusals.out_of_range(self.name, start, end, offset)
        return end

    def _advance_high_watermark(self) -> None:
        leading = self.leading
        if leading is None or self.state is None:
            return
        if self.high_watermark >= self.log.log_end_offset:
            return  # the usual case
        ends = {b: p.log_end_offset for b, p in leading.followers.items()}
        ends[self._broker_id] = self.counted_end
        advanced = hw.advanced(
            self.high_watermark,
            ends,
            maximal_isr=isr.maximal(self.state, leading.proposed),
            committed_isr_size=len(self.state.isr),
            min_isr=self.state.min_isr,
        )
        if advanced > self.high_watermark:
            self.high_watermark = advanced
            self._listener.high_watermark_moved(self)

    # -- ISR changes of the leader --------------------------------------------------

    def grant_followers(self, now_ms: int) -> None:
        """Counts every follower in the ISR as caught up now. Others have to fetch before they
        join."""
        if self.leading is None or self.state is None:
            return
        for broker_id in self.state.isr_ids & self.leading.followers.keys():
            progress = self.leading.followers[broker_id]
            self.leading.note(broker_id, progress._replace(last_caught_up_ms=now_ms))

    def is_settled(self, *, now_ms: int, lag_time_max_ms: int) -> bool:
        """Returns whether the replica is quiescent: all is committed, and all followers are in
        sync, in sessions with recent requests. It is a fast check for thousands of partitions."""
        leading = self.leading
        if leading is None or self.state is None:
            return False
        sessions = leading.settled
        if sessions is None:
            end = self.log.log_end_offset
            if self.high_watermark < end:
                return False
            sessions = leading.sessions_if_settled(len(self.state.isr), end)
            if sessions is None:
                return False
            leading.settled = sessions
        heard_since_ms = now_ms - lag_time_max_ms
        return all(session.last_request_ms >= heard_since_ms for session in sessions)

    def propose_isr(
        self,
        running: Mapping[int, int],
        *,
        now_ms: int,
        lag_time_max_ms: int,
        origin: Callable[[Cause], Change] = lambda _: NO_CHANGE,
    ) -> LeaderAndIsr | None:
        """Returns the value to write now by a compare-and-swap on `revision`; None: no change is
        needed, or one is in flight. From here on joiners hold back the high watermark.

        `origin` names the change for state-change events."""
        if self.leading is None or self.state is None or self.leading.proposed is not None:
            return None
        self.leading.settle(self.log.log_end_offset)
        change = isr.judge(
            self.state,
            self.leading.followers,
            running,
            high_watermark=self.high_watermark,
            epoch_start=self.leading.epoch_start,
            now_ms=now_ms,
            lag_time_max_ms=lag_time_max_ms,
            too_far_behind=self._too_far_behind(),
        )
        if change is None:
            return None
        self.leading.proposed = isr.changed(self.state, change, origin(change.cause))
        self.leading.settled = None
        return self.leading.proposed

    def _too_far_behind(self) -> list[int]:
        limit = self.lag_max_bytes
        if limit is None or self.leading is None:
            return []
        lags = isr.lags_in_bytes(self.leading.followers, self.log.bytes_from)
        return [broker_id for broker_id, lag in lags.items() if lag > limit]

    def isr_written(self, proposed: LeaderAndIsr, revision: int) -> None:
        """The store has accepted the proposal at `revision`."""
        if self.leading and self.leading.proposed is proposed and revision > self.revision:
            self.state = proposed
            self.revision = revision
            self._isr_taken()

    def isr_refused(self, proposed: LeaderAndIsr) -> None:
        """The store has certainly not accepted the proposal, and the key is unchanged (a joiner's
        registration has changed)."""
        if self.leading and self.leading.proposed is proposed:
            self.leading.proposed = None
            self.leading.settled = None
            self._advance_high_watermark()

    def observed(self, state: LeaderAndIsr | None, revision: int, now_ms: int) -> None:
        """Applies the partition's key as this broker read it by itself, after a conflict or from
        its watch. It may adopt ISR and replicas of its own epoch, or stop leading; never more."""
        if self.leading is None or self.state is None or revision <= self.revision:
            return
        same_leader = (
            state is not None
            and state.leader == self._broker_id
            and state.leader_epoch == self.state.leader_epoch
            and state.leader_broker_epoch == self.state.leader_broker_epoch
        )
        if not same_leader or state is None:
            # Superseded. The revision stays, so that the controller's command is applied.
            self.stop_leading()
            return
        self.state = state
        self.revision = revision
        self._epoch_goes_on(now_ms)

    def _epoch_goes_on(self, now_ms: int) -> None:
        """Continues the epoch with a newer state of the key. A move may have added followers; a
        follower is removed only with a new epoch."""
        assert self.leading is not None
        assert self.state is not None
        for broker_id in self.state.replicas:
            if broker_id != self._broker_id:
                self.leading.followers.setdefault(broker_id, isr.granted(now_ms))
        self._isr_taken()

    def _isr_taken(self) -> None:
        """Applies a newer revision within the epoch: what was proposed on the old one is either in
        `state` or can no longer be applied."""
        assert self.leading is not None
        self.leading.proposed = None
        self.leading.settled = None
        self._advance_high_watermark()
