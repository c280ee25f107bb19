"""Runs `tidelog explain` against the clusters of tests."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from integration.topics import create_topic
from integration.waiting import TIMEOUT_SECONDS, until
from tidelog.client import Consumer, Producer
from tidelog.client.connections import GrpcConnections
from tidelog.client.explain_requests import explain_cluster
from tidelog.errors import TidelogError
from tidelog.inspection.state_reports import Explanation, Finding, Scope
from tidelog.model import Acks, TopicPartition
from tidelog.rpc.message_codec import from_wire
from tidelog.v1 import inspect_pb2
from tidelog_runtime.local.cluster import LocalCluster

WHOLE = Scope()
# A service that answers at all does so within milliseconds.
ANSWER_MS = 1_000
# How often a finding is checked again while its fault lasts. The pauses are no waits for anything.
LATER_CHECKS, LATER_PAUSE_SECONDS = 4, 1.0

# Findings that are true where far more processes are ready to run than there are processors.
OF_A_BUSY_MACHINE = frozenset({"cpu_starved", "store_slow"})
BUSY_LOAD = 4.0

# A cause, and the broker that it is about; -1: no single one.
Cause = tuple[str, int]
# Partition names by leader and follower.
Pairs = Mapping[tuple[int, int], str]


def services(cluster: LocalCluster) -> dict[str, tuple[str, int]]:
    """The addresses of all brokers and controllers, running or not, with role and id."""
    described = cluster.describe()
    brokers = {part.address: ("broker", part.id) for part in described.brokers}
    return brokers | {part.address: ("controller", part.id) for part in described.controllers}


async def explained(cluster: LocalCluster, scope: Scope = WHOLE) -> Explanation:
    known = services(cluster)
    return await explain_cluster(list(known), scope, ANSWER_MS, known=known)


async def explained_by(address: str) -> list[Finding]:
    """The explanation as one service gives it."""
    connections = GrpcConnections()
    try:
        answer = await connections.inspected(address).explain(
            inspect_pb2.ExplainRequest(timeout_ms=ANSWER_MS), timeout_ms=10 * ANSWER_MS
        )
    finally:
        await connections.close()
    assert not answer.HasField("error"), answer.error
    return [from_wire(finding, Finding) for finding in answer.findings]


def split(name: str) -> tuple[str, int]:
    """
    >>> split("sea/3")
    ('sea', 3)
    """
    topic, _, partition = name.rpartition("/")
    return topic, int(partition)


def of(name: str) -> Scope:
    return Scope(*split(name))


async def of_partition(cluster: LocalCluster, name: str) -> list[Finding]:
    return list((await explained(cluster, of(name))).findings)


async def faults_of(cluster: LocalCluster, name: str) -> list[Finding]:
    """The faults of a partition, without notes, such as that a replica other than the preferred one
    leads."""
    return faults_in(await of_partition(cluster, name))


async def until_found(
    cluster: LocalCluster,
    *causes: Cause,
    also: Sequence[Cause] = (),
    scope: Scope = WHOLE,
    missing: tuple[str, ...] = (),
    containing: tuple[str, ...] = (),
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Explanation:
    """Waits for an explanation that has all of these causes and, except notes, no other findings
    (see `only`); returns the first. There has to be another one later.

    - `also`: findings that may be there or not, such as those that remain of earlier tests.
    - `containing`, `missing`: words of the explanation, and words that it must not have."""
    allowed = (*causes, *also)
    expected = _Wanted(causes, allowed, scope, missing, containing)
    found = await _until(cluster, expected, timeout_seconds)
    await asyncio.sleep(LATER_PAUSE_SECONDS)
    # What is reported for a moment on a busy machine may be there; what stays is a false finding.
    await _until(cluster, expected, timeout_seconds)
    return found


async def until_present(
    cluster: LocalCluster,
    *causes: Cause,
    scope: Scope = WHOLE,
    missing: tuple[str, ...] = (),
    containing: tuple[str, ...] = (),
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Explanation:
    """Like `until_found`, whatever else is reported: for states that last only a moment, and where
    other findings depend on the machine's speed."""
    expected = _Wanted(causes, None, scope, missing, containing)
    return await _until(cluster, expected, timeout_seconds)


class _Wanted(NamedTuple):
    """The explanation that a test waits for. `allowed`: see `only`; None: any findings."""

    causes: Sequence[Cause]
    allowed: Sequence[Cause] | None
    scope: Scope
    missing: Sequence[str]
    containing: Sequence[str]

    def is_met_by(self, found: Explanation) -> bool:
        words = "".join(map(text_of, found.findings))
        has_words = all(w in words for w in self.containing)
        has_words = has_words and not any(w in words for w in self.missing)
        return (
            has_words
            and causes_of(found).issuperset(self.causes)
            and (self.allowed is None or not others(found, *self.allowed))
        )


async def _until(cluster: LocalCluster, expected: _Wanted, timeout_seconds: float) -> Explanation:
    seen: list[Explanation] = []

    async def check() -> bool:
        seen[:] = [await explained(cluster, expected.scope)]
        return expected.is_met_by(seen[0])

    try:
        await until(check, f"explain finds {expected.causes}", timeout_seconds)
    except AssertionError as error:
        found = seen[0] if seen else Explanation()
        beyond = [] if expected.allowed is None else others(found, *expected.allowed)
        raise AssertionError(
            f"{error}; explain reports {sorted(causes_of(found))}, of these unexpected: "
            f"{sorted(causes_of(beyond))}; {found}"
        ) from None
    return seen[0]


async def assert_still_present(
    cluster: LocalCluster,
    *causes: Cause,
    any_of: frozenset[str] = frozenset(),
) -> None:
    """Asserts that explanations of the next seconds, while the fault lasts, have all of these
    causes, and one of `any_of` if it is not empty. Notes do not count."""
    for _ in range(LATER_CHECKS):
        await asyncio.sleep(LATER_PAUSE_SECONDS)
        found = faults_in(await explained(cluster))
        assert causes_of(found).issuperset(causes), found
        assert not any_of or any_of & {finding.cause for finding in found}, found


async def assert_still_found(
    cluster: LocalCluster, *causes: Cause, also: Sequence[Cause] = ()
) -> None:
    """Like `assert_still_present`, and one of the explanations has no other findings but notes."""
    await assert_still_present(cluster, *causes)
    exact = _Wanted(causes, (*causes, *also), WHOLE, (), ())
    await _until(cluster, exact, TIMEOUT_SECONDS)


def only(found: Explanation | list[Finding], *allowed: Cause) -> None:
    """Asserts that no finding except notes has another cause or another broker than these.

    Each entry allows one finding, so that a second one of the same cause and broker fails."""
    unexpected = others(found, *allowed)
    assert not unexpected, f"besides {allowed}: {sorted(causes_of(unexpected))}, {unexpected}"


def others(found: Explanation | list[Finding], *allowed: Cause) -> list[Finding]:
    """The findings, except notes, beyond the allowed ones."""
    left = Counter(allowed)
    beyond = []
    for finding in faults_in(found):
        entry = (finding.cause, finding.broker)
        if left[entry]:
            left[entry] -= 1
        elif not (finding.cause in OF_A_BUSY_MACHINE and is_busy()):
            beyond.append(finding)
    return beyond


def is_busy() -> bool:
    """Whether other programs keep this machine so busy that services lack processor time."""
    return os.getloadavg()[0] > BUSY_LOAD * (os.cpu_count() or 1)


def faults_in(found: Explanation | list[Finding]) -> list[Finding]:
    """All findings except notes."""
    findings = found if isinstance(found, list) else found.findings
    return [finding for finding in findings if finding.severity != "info"]


def the(found: Explanation | list[Finding], cause: str, broker: int | None = None) -> Finding:
    findings = found if isinstance(found, list) else found.findings
    matching = [f for f in findings if f.cause == cause and broker in (None, f.broker)]
    assert len(matching) == 1, f"{len(matching)} of {cause} {broker}: {findings}"
    return matching[0]


def assert_follows_from(finding: Finding, *roots: str) -> None:
    """The finding names these as its causes, and no others."""
    assert tuple(finding.because) == roots, finding


def causes_of(found: Explanation | list[Finding]) -> set[tuple[str, int]]:
    findings = found if isinstance(found, list) else found.findings
    return {(finding.cause, finding.broker) for finding in findings}


def text_of(finding: Finding) -> str:
    return "\n".join((finding.summary, *finding.evidence, finding.next_step))


def assert_not_blamed(found: Explanation, *names: str) -> None:
    """No finding except notes names these partitions."""
    for finding in found.findings:
        if finding.severity == "info":
            continue
        words = text_of(finding).replace(",", " ").replace(":", " ").split()
        for name in names:
            assert name not in finding.partitions, finding
            assert name not in words, finding


async def create_pairs(
    cluster: LocalCluster, topic: str, config: dict[str, str] | None = None
) -> Pairs:
    """A topic with a partition for each pair of leader and follower."""
    brokers = len(cluster.broker_ids)
    described = await create_topic(cluster, topic, brokers * (brokers - 1), 2, config)
    pairs = {(p.replicas[0], p.replicas[1]): f"{topic}/{p.partition}" for p in described.partitions}
    assert len(pairs) == brokers * (brokers - 1), pairs
    return pairs


async def append(
    cluster: LocalCluster, name: str, values: list[bytes], acks: Acks = Acks.LEADER
) -> None:
    """Raises if a record could not be delivered."""
    topic, partition = split(name)
    async with Producer(
        cluster.bootstrap, acks=acks, idempotent=False, delivery_timeout_ms=10_000
    ) as producer:
        await (await producer.send_many(topic, values, partition=partition))


async def reads_from_the_start(cluster: LocalCluster, name: str) -> None:
    """Reads as far as possible: damaged batches are not served."""
    partition = TopicPartition(*split(name))
    with suppress(TimeoutError, TidelogError):
        async with asyncio.timeout(3), Consumer(cluster.bootstrap, max_wait_ms=100) as consumer:
            consumer.assign([partition])
            await consumer.seek(partition, 0)
            while True:
                await consumer.poll()


async def produce_error(cluster: LocalCluster, name: str) -> TidelogError | None:
    """Why a produce with acks=all fails within some seconds; None: it succeeds."""
    topic, partition = split(name)
    async with Producer(cluster.bootstrap, delivery_timeout_ms=4_000) as producer:
        try:
            await (await producer.send_many(topic, [b"refused"], partition=partition))
        except TidelogError as error:
            return error
    return None


async def tidelog(
    cluster: LocalCluster, *arguments: str, bootstrap: Sequence[str] = ()
) -> tuple[int | None, str]:
    """The exit status of the command, and its complete output.

    `bootstrap`: all services unless it is given."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidelog.cli", *arguments),
        *("--bootstrap", ",".join(bootstrap or services(cluster))),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()
