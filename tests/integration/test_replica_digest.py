"""A replica has a different batch than its leader, with valid checksums: the comparison of digests
finds it, `tidelog explain` names both replicas, and its next step ends the divergence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from integration.clusters import running_cluster
from integration.explaining import (
    append,
    assert_not_blamed,
    explained,
    split,
    text_of,
    the,
    tidelog,
    until_present,
)
from integration.rewritten_batches import rewrite_a_batch
from integration.scraped import scrape
from integration.topics import create_topic, read, until_in_sync
from integration.waiting import until
from tidelog.model import Acks
from tidelog_runtime.demo.replicas import find_replica

DIVERGED, EQUAL = "sea/0", "sea/1"
BATCHES, RECORDS = 5, 20
VALUE, OTHER = b"acknowledged", b"unauthorised"


@pytest.mark.rule("divergent-replicas-are-reported")
async def test_a_different_valid_batch_on_one_disk_is_found_and_explained(tmp_path: Path) -> None:
    """Without a scrub: the follower compares its newest ranges after a start."""
    config = {"flush_interval_ms": 500, "digest_range_offsets": RECORDS}
    async with running_cluster(tmp_path, controllers=1, broker_config=config) as cluster:
        topic, partition = split(DIVERGED)
        described = await create_topic(cluster, topic, 2)
        for name in (DIVERGED, EQUAL):
            for _ in range(BATCHES):
                await append(cluster, name, [VALUE] * RECORDS, Acks.ALL)
        leader, follower, _ = described.partitions[partition].replicas
        data_dir = cluster.broker_data_dir(follower)
        replica = find_replica(data_dir, topic, partition, described.topic_id)

        await cluster.stop_broker(follower)
        offset = rewrite_a_batch(replica, VALUE, OTHER)
        cluster.start_broker(follower)
        await cluster.ready()
        await until_in_sync(cluster, topic)
        found = await until_present(cluster, ("replicas_diverged", leader))

        async def located() -> bool:
            return "the first batch that differs" in text_of(
                the(await explained(cluster), "replicas_diverged")
            )

        await until(located, "the first batch that differs is named")
        found = await explained(cluster)
        metrics = await scrape(cluster.broker_metrics(leader))
        _, scrubs = await tidelog(cluster, "brokers", "scrub", str(leader), "--status")
        traced = (await tidelog(cluster, "trace", DIVERGED))[1]
        kept = [p.name for p in (cluster.broker_data_dir(leader) / "evidence").iterdir()]
        values = {record.value for record in await read(cluster, topic)}

        # The next step.
        await cluster.stop_broker(follower)
        shutil.move(replica, tmp_path / "kept")
        cluster.start_broker(follower)
        await cluster.ready()
        await until_in_sync(cluster, topic)

        async def ended() -> bool:
            now = await explained(cluster)
            return not any(f.cause == "replicas_diverged" for f in now.findings)

        await until(ended, "no replica differs any more")
        resolved = [p.name for p in (cluster.broker_data_dir(leader) / "evidence").iterdir()]

    finding = the(found, "replicas_diverged")
    line = text_of(finding)
    assert (finding.topic, finding.partition, finding.severity) == (topic, partition, "critical")
    assert f"offsets {offset} to {offset + RECORDS - 1}" in line
    assert f"the first batch that differs is offset {offset}, {RECORDS} records" in line
    assert f"00000000000000000000.log on broker {follower}" in line
    assert_not_blamed(found, EQUAL)
    assert metrics.value("diverged_ranges") == 1
    assert metrics.value("divergences_found_total") == 1
    assert scrubs.splitlines()[1].split()[-1] == "1"
    assert "replica_diverged" in traced.replace(" ", "_"), traced
    assert [name.rsplit(".", 1)[1] for name in kept] == ["diverged"]
    assert [name.rsplit(".", 1)[1] for name in resolved] == ["resolved"]
    assert values == {VALUE}  # the leader's


async def test_a_batch_that_differs_from_the_written_one_is_found_without_other_replicas(
    tmp_path: Path,
) -> None:
    config = {"flush_interval_ms": 500}
    async with running_cluster(tmp_path, controllers=1, brokers=1, broker_config=config) as cluster:
        topic, partition = split(DIVERGED)
        described = await create_topic(cluster, topic, 1, 1)
        for _ in range(BATCHES):
            await append(cluster, DIVERGED, [VALUE] * RECORDS, Acks.ALL)
        data_dir = cluster.broker_data_dir(1)
        replica = find_replica(data_dir, topic, partition, described.topic_id)

        async def scrubbed() -> bool:
            """Waits for a scrub once the records are synced."""
            await tidelog(cluster, "brokers", "scrub", "--full-rate")
            _, shown = await tidelog(cluster, "brokers", "scrub", "--status", "--json")
            (status,) = json.loads(shown)
            return bool(status["last_pass_bytes"] >= status["total_bytes"] > 0)

        await until(scrubbed, "all records are checked")
        before = (await explained(cluster)).findings
        rewrite_a_batch(replica, VALUE, OTHER)
        await until(scrubbed, "all records are checked again")
        found = await until_present(cluster, ("replicas_diverged", 1))

    assert not any(f.cause == "replicas_diverged" for f in before)
    finding = the(found, "replicas_diverged")
    assert f"the disk of broker 1 holds other committed records of {DIVERGED}" in finding.summary
    assert "the checksums of all of them hold" in finding.summary
