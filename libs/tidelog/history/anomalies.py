"""What a history must not show.

Every verdict is about one partition and its order: offset → set of values, from every poll
and from every send that ended ok. A send that ended info (or never ended) is in the order
once it was read, at the offset where it was read. An offset may hold no record: where a
producer's name was taken over lies a fence, which no client is given.

- **inconsistent offsets**: one offset, two or more values. An acknowledgement's offset
  counts like a read one.
- **duplicate**: one value at two or more offsets; likewise.
- **aborted read**: a value was polled whose send ended fail.
- **phantom read**: a value was polled that nobody sent to this partition, or a record that
  carries no value. A send belongs to the partition that its end names, else its
  invocation; where neither does, to the lowest partition of its topic that it was read in.
- **lost write**: acknowledged at an offset that somebody read past, and read by nobody, at
  whatever offset. Read past: from 0 to the highest offset that a client was given before
  it was first repositioned, and in final reads; between the first and the last offset of
  a stretch of polls that follows a repositioning or a poll of unknown outcome. (Who seeks
  to the end has not read past what lies before.) What a loss mark names was read past
  nothing of a later leader epoch, which may have been written in its place. A send that is
  ok without an offset cannot be judged so.
- **unseen**: acknowledged before the partition's final reads began, never polled, and not
  already a lost write: the drain ended below it, or its offset is not known. Not judged in
  a partition without final reads; the report names those.
- **poll skip**: a client's next offset is not its last + 1 but higher, without a repositioning
  between, and a record is known at an offset that it passed over: somebody was acknowledged it
  there, or was given it there. (Else only a fence may lie there, which is why a record of
  unknown outcome that nobody was given is missed by nobody.) Where they are of different
  epochs no loss mark may have given up either, the record or what the client read on in: they
  may be of different logs. A failed poll changes nothing; after one whose outcome is unknown
  the next may be anywhere.
- **non-monotonic poll**: a client's next offset is its last or lower, without a
  repositioning between; likewise.
- **internal skip**, **internal non-monotonic**: the same two inside one poll.
- **non-monotonic send**: of two successive acknowledged sends of one client, in the order
  in which they were handed over, the second has a lower offset. Those without an offset
  are passed over.
- **HW regression**: a partition's committed end goes back. It does if one client's
  successive polls, or successive readings, show it lower; if a reading shows less than
  somebody had seen in the same leader epoch before it was asked for; or if a leader epoch
  shows less than an older one ever did. (A cut-off leader may show its old end for a
  while: a lower end in an *older* epoch is late and not wrong. Polls may hand out what was
  fetched earlier, so that they are compared by client and by epoch alone.)
- **two leaders in one epoch**: two brokers acknowledged a write in one leader epoch.
- **replica divergence**: two digests of one range of committed offsets differ.

A loss mark names leader epochs and offsets of one partition that were given up. An
inconsistent offset, duplicate, lost write, unseen, non-monotonic send or HW regression is
**excused**, and counted apart, if it would vanish with everything that is stamped so; the
other classes never are, because no loss explains them.
"""

from __future__ import annotations

import enum
from bisect import insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

# Of each class, excused and not, so many are kept with the operations that show them.
MAX_EXAMPLES = 10


class Anomaly(enum.StrEnum):
    """In the order in which reports name them."""

    LOST_WRITE = "lost write"
    UNSEEN = "unseen"
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    DUPLICATE = "duplicate"
    ABORTED_READ = "aborted read"
    PHANTOM_READ = "phantom read"
    POLL_SKIP = "poll skip"
    NON_MONOTONIC_POLL = "non-monotonic poll"
    INTERNAL_SKIP = "internal skip"
    INTERNAL_NON_MONOTONIC = "internal non-monotonic"
    NON_MONOTONIC_SEND = "non-monotonic send"
    HW_REGRESSION = "HW regression"
    TWO_LEADERS = "two leaders in one epoch"
    REPLICA_DIVERGENCE = "replica divergence"


class Reference(NamedTuple):
    """An operation that shows an anomaly."""

    line: int
    time_ms: int
    text: str


class Finding(NamedTuple):
    """`excuse`: the reason of the loss mark, if one explains it."""

    anomaly: Anomaly
    topic: str
    partition: int
    summary: str
    references: tuple[Reference, ...]
    excuse: str | None

    @property
    def headline(self) -> str:
        return f"{self.topic}/{self.partition}: {self.summary}"


@dataclass(slots=True)
class Findings:
    """All are counted; of each class those with the lowest lines are kept, so that it makes no
    difference in which order they are found, and by how many."""

    counts: Counter[Anomaly] = field(default_factory=Counter)
    excused: Counter[Anomaly] = field(default_factory=Counter)
    examples: dict[tuple[Anomaly, bool], list[Finding]] = field(default_factory=dict)

    def merge(self, other: Findings) -> None:
        self.counts.update(other.counts)
        self.excused.update(other.excused)
        for key, more in other.examples.items():
            kept = self.examples.get(key, []) + more
            self.examples[key] = sorted(kept, key=_order)[:MAX_EXAMPLES]

    def add(self, finding: Finding) -> None:
        is_excused = finding.excuse is not None
        counts = self.excused if is_excused else self.counts
        counts[finding.anomaly] += 1
        kept = self.examples.setdefault((finding.anomaly, is_excused), [])
        if len(kept) < MAX_EXAMPLES or _order(finding) < _order(kept[-1]):
            insort(kept, finding, key=_order)
            del kept[MAX_EXAMPLES:]

    def classes(self) -> list[Anomaly]:
        """Of which there are any, excused or not."""
        return [anomaly for anomaly in Anomaly if self.of(anomaly)]

    def of(self, anomaly: Anomaly) -> list[Finding]:
        """Examples, those that nothing excuses first."""
        return self.examples.get((anomaly, False), []) + self.examples.get((anomaly, True), [])


def _order(finding: Finding) -> tuple[int, Finding]:
    """By the first line; the rest decides between those that have one in common."""
    return min((reference.line for reference in finding.references), default=0), finding


class PartitionFindings:
    """Where the checks of one partition put what they find."""

    def __init__(self, topic: str, partition: int) -> None:
        self.findings = Findings()
        self._topic = topic
        self._partition = partition

    def add(
        self,
        anomaly: Anomaly,
        summary: str,
        references: Iterable[Reference],
        excuse: str | None = None,
    ) -> None:
        """`references`: the operations that show it."""
        ordered = tuple(sorted(references))
        self.findings.add(Finding(anomaly, self._topic, self._partition, summary, ordered, excuse))
