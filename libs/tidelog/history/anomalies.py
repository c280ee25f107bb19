"""The anomalies that the checker finds in a history.

Every verdict is about one partition and its order: offset → set of values, from every poll
and from every send that ended ok. A send that ended info (or never ended) is in the order
once it was read, at the offset where it was read. An offset may hold no record: a producer
fence lies where a producer's name was taken over, and clients do not receive fences.

- **inconsistent offsets**: one offset has two or more values. The offset of an
  acknowledgement counts like an offset that was read.
- **duplicate**: one value has two or more offsets; acknowledgements count here, too.
- **aborted read**: a value was polled whose send ended fail.
- **phantom read**: a value was polled that no client sent to this partition, or a record that
  carries no value. A send belongs to the partition that its end names, else to the one that its
  invocation names. If neither names one, it belongs to the lowest partition of its topic where
  it was read.
- **lost write**: a value was acknowledged at an offset that some client read past, and no client
  read it at any offset. A client reads past the offsets from 0 to the highest one that it
  received before its first repositioning; in final reads, too. After a repositioning, or a poll
  of unknown outcome, it reads past the offsets between the first and the last one of that stretch
  of polls. (A client that seeks to the end has not read past what lies before.) A client that
  read a record which a loss mark covers has not read past records of later leader epochs, which
  may have been written in its place. A send that is ok without an offset cannot be judged so.
- **unseen**: a value was acknowledged before the partition's final reads began, was never polled,
  and is not already a lost write: the drain ended below it, or its offset is unknown. Partitions
  without final reads are not judged; the report names them.
- **poll skip**: a client's next offset is higher than its last + 1, without a repositioning
  between, and a record is known at an offset that it passed over: a client was acknowledged the
  record there, or received it there. (Otherwise there may be only a fence, so a record of unknown
  outcome that no client received is not missed.) If the record and the one that the client
  received next are of different epochs, no loss mark may cover either: they may be of different
  logs. A failed poll changes nothing. After a poll of unknown outcome the next may be anywhere.
- **non-monotonic poll**: a client's next offset is its last or lower, without a repositioning
  between. Failed polls and polls of unknown outcome count as above.
- **internal skip**, **internal non-monotonic**: the same two inside one poll.
- **non-monotonic send**: of two successive acknowledged sends of one client, in the order in which
  it handed them over, the second has a lower offset. Sends without an offset are ignored.
- **HW regression**: a partition's committed end decreases. It does in three cases: one client's
  successive polls, or successive readings, show it lower; a reading shows less than a client had
  seen in the same leader epoch before the reading was invoked; or a leader epoch shows less than
  an older epoch ever did. (A cut-off leader may show its old end for a while: a lower end in an
  *older* epoch is late and not wrong. Polls may return what was fetched earlier, so they are
  compared only by client and by epoch.)
- **two leaders in one epoch**: two brokers acknowledged a write in one leader epoch.
- **replica divergence**: two digests of one range of committed offsets differ.

A loss mark names leader epochs and offsets of one partition whose records were given up. An
inconsistent offset, duplicate, lost write, unseen, non-monotonic send or HW regression is
**excused**, and counted apart, if it would not exist without the records that the marks cover.
The other classes are never excused, because no loss explains them.
"""

from __future__ import annotations

import enum
from bisect import insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

# Examples that are kept of each class, excused and not, with the operations that show them.
MAX_EXAMPLES = 10


class Anomaly(enum.StrEnum):
    """The classes of anomalies, in the order in which reports name them."""

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
    """An operation that is evidence of an anomaly."""

    line: int
    time_ms: int
    text: str


class AnomalyFinding(NamedTuple):
    """One anomaly with its evidence. `excuse`: the reason of the loss mark that explains it."""

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
    """Counts of all findings, and examples of each class.

    The examples are those with the lowest lines, so that the order of discovery and the number of
    checkers make no difference.
    """

    counts: Counter[Anomaly] = field(default_factory=Counter)
    excused: Counter[Anomaly] = field(default_factory=Counter)
    examples: dict[tuple[Anomaly, bool], list[AnomalyFinding]] = field(default_factory=dict)

    def merge(self, other: Findings) -> None:
        self.counts.update(other.counts)
        self.excused.update(other.excused)
        for key, more in other.examples.items():
            kept = self.examples.get(key, []) + more
            self.examples[key] = sorted(kept, key=_order)[:MAX_EXAMPLES]

    def add(self, finding: AnomalyFinding) -> None:
        is_excused = finding.excuse is not None
        counts = self.excused if is_excused else self.counts
        counts[finding.anomaly] += 1
        kept = self.examples.setdefault((finding.anomaly, is_excused), [])
        if len(kept) < MAX_EXAMPLES or _order(finding) < _order(kept[-1]):
            insort(kept, finding, key=_order)
            del kept[MAX_EXAMPLES:]

    def classes(self) -> list[Anomaly]:
        """Returns the classes with findings, excused or not."""
        return [anomaly for anomaly in Anomaly if self.of(anomaly)]

    def of(self, anomaly: Anomaly) -> list[AnomalyFinding]:
        """Returns the examples of a class, those without an excuse first."""
        return self.examples.get((anomaly, False), []) + self.examples.get((anomaly, True), [])


def _order(finding: AnomalyFinding) -> tuple[int, AnomalyFinding]:
    """Sorts by the first line, then by the finding itself."""
    return min((reference.line for reference in finding.references), default=0), finding


class PartitionFindings:
    """Collects the findings of one partition."""

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
        """`references`: the operations that show the anomaly."""
        ordered = tuple(sorted(references))
        self.findings.add(
            AnomalyFinding(anomaly, self._topic, self._partition, summary, ordered, excuse)
        )
