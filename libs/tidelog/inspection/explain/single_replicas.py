"""Topics that a single failure can lose, although nothing is wrong now. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.formatting import MAX_NAMED, listed
from tidelog.inspection.explain.observation import TopicFactors
from tidelog.inspection.state_reports import Finding
from tidelog.inspection.unprotected_topics import (
    UNPROTECTED,
    to_protect,
    unprotected_topics,
)
from tidelog.phrases import plural


def single_replicas(topics: TopicFactors | None) -> Iterator[Finding]:
    """Yields one finding about all unprotected topics: it is a note, and causes nothing else."""
    names = unprotected_topics(topics.topics) if topics is not None else []
    if topics is not None and names:
        yield _finding(names, topics.brokers)


def _finding(topics: Sequence[str], brokers: int) -> Finding:
    alone = len(topics) == 1
    what = f"topic {topics[0]} is" if alone else f"{plural(len(topics), 'topic')} are"
    of_each = "its" if alone else "their"
    evidence = [f"replication factor 1: {listed(topics)}"]
    if brokers == 1:
        evidence.append("the cluster has one broker")
    step = to_protect(topics[:MAX_NAMED], brokers)
    rest = len(topics) - MAX_NAMED
    more = f" The same for {rest:,} more, which tidelog topics list marks." if rest > 0 else ""
    return Finding(
        causes.SINGLE_REPLICA,
        causes.INFO,
        f"{what} {UNPROTECTED}: each partition has a single replica, so that {of_each} records are "
        "lost with one disk, and cannot be read while one broker is down",
        tuple(evidence),
        f"{step[0].upper()}{step[1:]}.{more}" if brokers == 1 else f"To protect: {step}.{more}",
        topics[0] if alone else "",
    )
