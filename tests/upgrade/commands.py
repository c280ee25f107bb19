"""Commands of one release on services of another: each has a clear answer, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from tidelog.cli.exit_status import ExitStatus
from upgrade.mixed_cluster import TRACEBACK, Ended, MixedCluster
from upgrade.releases import Release

_DONE = (ExitStatus.DONE,)
# Findings are exit status 1.
_FINDINGS = (ExitStatus.DONE, ExitStatus.FAILED)
_REJECTED = (ExitStatus.FAILED,)
_NOT_FOUND = (ExitStatus.NOT_FOUND,)
_LINES = "north:calm\nsouth:storm\nnorth:swell\n"
_INTERNAL = "internal error"

_numbers = count(1)


class Expected(NamedTuple):
    """`phrase`: part of the output."""

    arguments: Sequence[str]
    statuses: Sequence[ExitStatus] = _DONE
    phrase: str = ""
    input_: str = ""


def admin_commands(topic: str) -> Iterator[Expected]:
    """A topic from its creation to its deletion, and questions to the active controller."""
    yield Expected(("cluster", "describe", "--json"), phrase='"controllers"')
    yield Expected(("topics", "create", topic, "-p", "2", "-r", "3", "-c", "retention_ms=3600000"))
    yield Expected(("topics", "create", topic, "-p", "2", "-r", "3"), _REJECTED, "exists")
    yield Expected(("topics", "alter-config", topic, "--set", "segment_ms=600000"))
    yield Expected(
        ("topics", "alter-config", topic, "--set", "segmentms=1"), _REJECTED, "segment_ms"
    )
    yield Expected(("topics", "config", topic, "--set-only", "--json"), phrase="600000")
    yield Expected(("topics", "add-partitions", topic, "-p", "3", "--yes"))
    yield from record_commands(topic)
    yield Expected(("brokers", "list", "--json"), phrase='"running"')
    yield Expected(("brokers", "check-restart", "1"), _FINDINGS, "roker 1")
    yield Expected(("rebalance", "--dry-run", "--json"), phrase='"plan"')
    yield Expected(
        ("reassign", f"{topic}/0=1,2", f"{topic}/1=2,3", "--yes", "--watch"), phrase="done"
    )
    yield Expected(("operations", "list", "--json"), phrase='"done"')
    yield Expected(("leaders", "elect-preferred", topic))
    yield Expected(("throttle", "describe"))
    yield Expected(("trace", f"{topic}/0"), phrase=topic)
    yield Expected(("topics", "delete", topic, "--yes"))
    yield Expected(("topics", "describe", topic), _NOT_FOUND, topic)


def record_commands(topic: str) -> Iterator[Expected]:
    """Records and descriptions, of an existing topic."""
    yield Expected(("produce", topic, "--key-separator", ":"), input_=_LINES)
    yield Expected(("consume", topic, "--max", "3"), phrase="swell")
    yield Expected(("topics", "describe", topic, "--logs", "--json"), phrase='"log_end_offset"')
    yield Expected(("topics", "list", "--json"), phrase=topic)
    yield Expected(("explain",), _FINDINGS)


async def check_admin_commands(cluster: MixedCluster, release: Release) -> list[str]:
    """Returns what was wrong; empty: nothing."""
    return await _check(cluster, release, admin_commands(f"commands-{next(_numbers)}"))


async def check_record_commands(cluster: MixedCluster, release: Release) -> list[str]:
    topic = f"commands-{next(_numbers)}"
    commands = [
        Expected(("topics", "create", topic, "-p", "2", "-r", "3")),
        *record_commands(topic),
        Expected(("topics", "delete", topic, "--yes")),
    ]
    return await _check(cluster, release, commands)


async def _check(
    cluster: MixedCluster, release: Release, commands: Iterator[Expected] | Sequence[Expected]
) -> list[str]:
    problems = []
    for expected in commands:
        ended = await cluster.tidelog(release, *expected.arguments, input_=expected.input_)
        if wrong := judge(ended, expected):
            problems.append(wrong)
    return problems


def judge(ended: Ended, expected: Expected) -> str:
    """Returns what is wrong with the answer; empty: nothing. Pure."""
    reasons = []
    if ended.status not in expected.statuses:
        reasons.append(f"status {ended.status}, expected {[int(s) for s in expected.statuses]}")
    marks = (TRACEBACK, _INTERNAL)
    reasons += [f"it shows {mark!r}" for mark in marks if mark in ended.output]
    if expected.phrase not in ended.output:
        reasons.append(f"the output has no {expected.phrase!r}")
    return f"{ended.command}: {'; '.join(reasons)}: {ended.output[-1_500:]}" if reasons else ""
