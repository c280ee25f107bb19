"""The topics that a restore writes: how they are created, recognized and completed.

A restore keeps its progress in the cluster alone. All its records have the producer id of a name
that belongs to the backup, and sequences that count the records of the partition from 0. So the
end of a partition and the producer's last sequence say whether it has exactly the first records of
the backup, and a repeated batch is a duplicate for its leader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.backup.manifest import BackupError, Manifest, TopicBackup
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.descriptions import TopicDescription
from tidelog.client.sequences import SEQUENCES, Identity
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.record_limits import HIGHEST_MAX_BATCH_BYTES, HIGHEST_MAX_BATCH_RECORDS
from tidelog.request_bounds import check_topic_name

# Configuration of a topic while it is being restored: old records are not removed, batches of any
# size that some topic allows are accepted, and timestamps stay as they are.
RESTORING_CONFIG: Mapping[str, str] = {
    "retention_ms": "-1",
    "retention_bytes": "-1",
    "timestamp_type": "create",
    "timestamp_max_ahead_ms": "-1",
    "max_batch_bytes": str(HIGHEST_MAX_BATCH_BYTES),
    "max_batch_records": str(HIGHEST_MAX_BATCH_RECORDS),
}
RETENTION = ("retention_ms", "retention_bytes")
_MIN_ISR = "min_insync_replicas"
CREATE_TIMEOUT_MS = 120_000


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic in the target cluster.

    - `backup`: what it is restored from.
    - `written`: by partition, how many records an earlier run has written.
    """

    name: str
    backup: TopicBackup
    config: Mapping[str, str]
    written: Mapping[int, int]


class TargetName(NamedTuple):
    """A topic of the backup, and its name in the target cluster."""

    backup: TopicBackup
    name: str


def target_names(
    manifest: Manifest, chosen: Sequence[TopicBackup], renamed: Mapping[str, str]
) -> list[TargetName]:
    """Raises `BackupError` for a name that is not in the backup or would be given twice, and
    `TidelogError` (INVALID_TOPIC_NAME)."""
    for name in renamed:
        if manifest.topic(name) is None:
            raise BackupError(f"the backup has no topic {name!r} to rename")
    targets = [TargetName(topic, renamed.get(topic.topic, topic.topic)) for topic in chosen]
    seen: set[str] = set()
    for target in targets:
        check_topic_name(target.name)
        if target.name in seen:
            raise BackupError(f"two topics would be restored as {target.name!r}; rename one")
        seen.add(target.name)
    return targets


class TopicPreparation:
    """Creates topics, or finds what an earlier run has written to them. `warnings` collects how
    they differ from those of the backup."""

    def __init__(
        self,
        admin: Admin,
        consumer: Consumer,
        identity: Identity,
        brokers: int,
        replication_factor: int | None,
    ) -> None:
        self._admin = admin
        self._consumer = consumer
        self._identity = identity
        self._brokers = brokers
        self._replication_factor = replication_factor
        self.warnings: list[str] = []

    async def prepare(self, targets: Sequence[TargetName]) -> list[RestoredTopic]:
        """Changes nothing unless each topic can be restored. Raises TOPIC_ALREADY_EXISTS for a
        topic with other records."""
        existing = {t.name: t for t in await self._admin.find_topics([t.name for t in targets])}
        found: dict[str, Mapping[int, int]] = {}
        for target in targets:
            if target.name in existing:
                found[target.name] = await self._progress(target, existing[target.name])
        prepared: list[RestoredTopic] = []
        for target in targets:
            factor = self._factor(target)
            config = self._config(target, factor)
            restoring = {**config, **RESTORING_CONFIG}
            if target.name in existing:
                await self._admin.alter_topic_config(target.name, RESTORING_CONFIG)
            else:
                await self._admin.create_topic(
                    target.name,
                    target.backup.partition_count,
                    factor,
                    restoring,
                    CREATE_TIMEOUT_MS,
                )
            written = found.get(target.name, {})
            prepared.append(RestoredTopic(target.name, target.backup, config, written))
        return prepared

    def _factor(self, target: TargetName) -> int:
        factor = self._replication_factor or target.backup.replication_factor
        if factor <= self._brokers:
            return factor
        self.warnings.append(
            f"{target.name}: replication factor {self._brokers} instead of {factor}, because the "
            f"cluster has {self._brokers} live brokers; raise it later with tidelog topics "
            "set-replication-factor"
        )
        return self._brokers

    def _config(self, target: TargetName, factor: int) -> Mapping[str, str]:
        config = dict(target.backup.config)
        minimum = config.get(_MIN_ISR)
        if minimum is not None and int(minimum) > factor:
            config[_MIN_ISR] = str(factor)
            self.warnings.append(
                f"{target.name}: {_MIN_ISR} {factor} instead of {minimum}, because no partition "
                "has more replicas"
            )
        return config

    async def _progress(self, target: TargetName, existing: TopicDescription) -> Mapping[int, int]:
        """Returns how many records of the backup each partition has."""
        topic = target.backup
        if existing.partition_count != topic.partition_count:
            raise _exists(
                target.name,
                f"it has {existing.partition_count} partitions, and the backup has "
                f"{topic.partition_count}",
            )
        partitions = [TopicPartition(target.name, n) for n in range(topic.partition_count)]
        ends = await self._consumer.end_offsets(partitions)
        positions = await self._admin.describe_producers(
            target.name, None, [self._identity.producer_id]
        )
        written: dict[int, int] = {}
        records = {p.partition: p.records for p in topic.partitions}
        for name, end in ends.items():
            at = positions[name.partition]
            last = at[0].last_sequence if at else -1
            if end and last != (end - 1) % SEQUENCES:
                raise _exists(target.name, f"{name} has records that no restore has written")
            if end > records.get(name.partition, 0):
                raise _exists(target.name, f"{name} has {end} records, more than the backup")
            written[name.partition] = end
        if not any(written.values()) and not _is_being_restored(existing):
            raise _exists(target.name, "no restore of the backup has created it")
        return written


async def complete_topic(admin: Admin, topic: RestoredTopic, *, keeps_retention: bool) -> None:
    """Gives a restored topic the configuration of the backup. `keeps_retention`: except that
    records are never removed."""
    keys = [key for key in RESTORING_CONFIG if not (keeps_retention and key in RETENTION)]
    changed = {key: topic.config[key] for key in keys if key in topic.config}
    unset = [key for key in keys if key not in topic.config]
    await admin.alter_topic_config(topic.name, changed, unset)


def _is_being_restored(topic: TopicDescription) -> bool:
    return all(topic.config.get(key) == value for key, value in RESTORING_CONFIG.items())


def _exists(topic: str, reason: str) -> TidelogError:
    return TidelogError(
        ErrorCode.TOPIC_ALREADY_EXISTS,
        f"topic {topic!r} exists and was not created by this restore: {reason}; delete it, or "
        f"restore under another name with --rename",
    )
