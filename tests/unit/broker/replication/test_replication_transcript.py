"""The steps T1 to T10 by which a record becomes visible, as a golden transcript. The test runs
three production replicas and carries messages by hand. `golden/replication.txt` has the expected
output. Read a changed transcript before you accept it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.model import NO_OFFSET, Acks
from tidelog_broker.core.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.core.partition.partition import Partition
from unit.broker.fake_log import FakeLog, epoch_of, new_partition, sent, state

_GOLDEN = Path(__file__).parent / "golden" / "replication.txt"
_ALL_BYTES = 1 << 20


class _Story:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._logs = {broker: FakeLog() for broker in (1, 2, 3)}
        self._replicas = {b: new_partition(log, b) for b, log in self._logs.items()}
        for broker, replica in self._replicas.items():
            replica.take(state(), 10, broker_epoch=epoch_of(broker), now_ms=1000)

    @property
    def _leader(self) -> Partition:
        return self._replicas[1]

    def produce(self, count: int) -> None:
        appended = self._leader.append([sent() for _ in range(count)], Acks.ALL, 1000)
        offsets = list(range(appended.base_offset, appended.next_offset))
        self._step(f"a producer appends {offsets} to replica 1")

    def replica_fetch(self, follower: int) -> None:
        replica = self._replicas[follower]
        asked = replica.fetch_position()
        answer = self._answer(follower, asked)
        replica.follow(asked, answer)
        offsets = [batch.header.base_offset for batch in answer.batches]
        self._step(f"replica {follower} fetches from {asked.fetch_offset} and gets {offsets}")

    def _answer(self, follower: int, position: FetchPosition) -> FetchAnswer:
        diverging = self._leader.replica_fetch(follower, epoch_of(follower), position, 1000)
        assert diverging is None
        return self._leader.read_for_follower(position, _ALL_BYTES)

    def consume(self) -> None:
        answer = self._leader.read_for_consumer(0, 5, _ALL_BYTES)
        read = [batch.header.base_offset for batch in answer.batches]
        self._step(f"a consumer fetches from 0 and gets {read}")

    def _step(self, what: str) -> None:
        number = 1 + sum(line.startswith("T") for line in self.lines)
        self.lines += [f"T{number}: {what}", f"  1 leads   {self._log(1)}, {self._known()}"]
        self.lines += [f"  {b} follows {self._log(b)}" for b in (2, 3)]

    def _log(self, broker: int) -> str:
        offsets = [batch.header.base_offset for batch in self._logs[broker].batches]
        return f"log {offsets}, high watermark {self._replicas[broker].high_watermark}"

    def _known(self) -> str:
        leading = self._leader.leading
        assert leading is not None
        ends = (
            f"{b} at {'?' if p.log_end_offset == NO_OFFSET else p.log_end_offset}"
            for b, p in sorted(leading.followers.items())
        )
        return "knows " + ", ".join(ends)


@pytest.mark.rule("record-visible-in-ten-steps")
def test_a_record_becomes_visible_in_ten_steps() -> None:
    story = _Story()
    story.produce(3)
    story.replica_fetch(2)
    story.replica_fetch(3)
    story.consume()
    story.replica_fetch(2)
    story.replica_fetch(3)
    story.produce(2)
    story.replica_fetch(2)
    story.replica_fetch(2)
    story.consume()
    assert "\n".join(story.lines) + "\n" == _GOLDEN.read_text()
