"""The logs of a broker in a directory, opened as a starting broker does."""

from collections.abc import Mapping
from pathlib import Path

from tidelog.model import TopicPartition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.topic_config import TopicConfig
from unit.broker.broker_parts import KEY
from unit.broker.fake_log import NAME, TOPIC_ID
from unit.broker.log.builders import FakeClock, batch_at

CONFIG = TopicConfig()
OTHER = ReplicaKey(TOPIC_ID, 1)
OTHER_NAME = TopicPartition(NAME.topic, 1)


class Stored:
    """The logs of a broker in a directory, opened as a starting broker does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.logs = LogDirectory(OsDisk(), path, self.clock)
        self.damage = self.logs.open_all()

    def in_use(self) -> list[str]:
        return sorted(entry.name for entry in (self.path / "replicas").iterdir())

    def strays(self) -> list[str]:
        return sorted(entry.name for entry in (self.path / "strays").iterdir())

    def sweep(self, kept_ms: int) -> None:
        for stray in self.logs.strays.expired(kept_ms):
            self.logs.strays.delete(stray)

    def with_records(self, number: int = 3, name: TopicPartition = NAME) -> None:
        key = ReplicaKey(TOPIC_ID, name.partition)
        log = self.logs.open_replica(name, key, CONFIG)
        log.append([batch_at(offset) for offset in range(number)])


def replica_path(tmp_path: Path) -> Path:
    return tmp_path / "replicas" / f"orders-0.{TOPIC_ID}"


def checkpoint(
    logs: LogDirectory, high_watermarks: Mapping[ReplicaKey, int], *, sync: bool = False
) -> None:
    write = logs.begin_checkpoint(high_watermarks, sync=sync)
    write.run()
    assert logs.finish_checkpoint(write)


def end_of(stored: Stored, key: ReplicaKey = KEY) -> int:
    log = stored.logs.log_of(key)
    assert log is not None
    return log.log_end_offset
