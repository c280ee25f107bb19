"""The `PartitionListener` of the broker."""

from __future__ import annotations

from tidelog_broker.replication.isr_updates import IsrUpdates
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_broker.storage.log_syncer import LogSyncer


class BrokerListener:
    """Forwards events of partitions to the parts of the broker that wait for them."""

    def __init__(
        self, purgatory: Purgatory, isr_updates: IsrUpdates, log_syncer: LogSyncer
    ) -> None:
        self.sync_needed = log_syncer.note
        self.log_grew = purgatory.log_grew
        self.high_watermark_moved = purgatory.high_watermark_moved
        self.log_start_moved = purgatory.log_start_moved
        self.isr_needs_evaluation = isr_updates.evaluate_soon
        self.leadership_ended = purgatory.leadership_ended
        self.followers_forgotten = purgatory.followers_forgotten
