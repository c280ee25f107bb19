"""Actions of the archive over many leader epochs of several partitions, each with records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from pipeline.archives import Act, all_of, log_of, positions
from spark.running import Running
from tidelog.client import Admin, Producer
from tidelog.model import TopicPartition

# The product of both is the number of spans that an action compares records with.
PARTITIONS, EPOCHS = 12, 40


async def fill_epochs(bootstrap: str, brokers: Sequence[int], topic: str, epochs: int) -> None:
    """Writes a record to each partition, and moves its leader, as often as there are epochs."""
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        for _ in range(epochs):
            sent = [await producer.send(topic, b"x", partition=p) for p in range(PARTITIONS)]
            await asyncio.gather(*sent)
            leaders = [p.leader for p in (await admin.describe_topic(topic)).partitions]
            moves = {
                TopicPartition(topic, p): next(b for b in brokers if b != leader)
                for p, leader in enumerate(leaders)
            }
            changes = await admin.move_leaders(moves)
            assert [change for change in changes if change.error is not None] == []


def test_many_leader_epochs_are_archived_repaired_compacted_and_reconciled(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = cluster.new_topic(PARTITIONS)
    fill = partial(fill_epochs, cluster.bootstrap, cluster.local.broker_ids, topic)
    cluster.run(fill(EPOCHS - 1))
    act("run", "--topics", topic, "--no-compaction")
    cluster.run(fill(1))
    act("run", "--topics", topic, "--no-compaction", "--on-data-loss", "continue")
    everything = all_of(EPOCHS, PARTITIONS)
    assert positions(spark, tmp_path) == everything
    (tmp_path / "archive" / log_of(tmp_path).load().paths[0]).unlink()
    assert "rows are restored from the topic" in "\n".join(act("repair"))
    act("compact")
    assert positions(spark, tmp_path) == everything
    table = spark.read.parquet(str(tmp_path / "archive"))
    [epochs] = table.agg(sf.count_distinct("partition", "leader_epoch")).collect()
    assert epochs[0] == PARTITIONS * EPOCHS
    compared = act("reconcile", "--deep")
    same = f"{EPOCHS} records in the log and in the archive"
    assert compared == [f"{topic}/{p}: {same}" for p in range(PARTITIONS)]
