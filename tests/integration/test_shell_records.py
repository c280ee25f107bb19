"""Records written and read from the shell, and loads, against running brokers."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from integration.shell import tidelog
from integration.topics import create_topic, describe, new_name, until_in_sync
from tidelog.cli.exit_status import ExitStatus
from tidelog_runtime.local.cluster import LocalCluster

LINES = "".join(
    json.dumps(
        {
            "key": f"k{number % 5}",
            "value": f"storm {number}" if number % 10 == 0 else f"calm {number}",
            "headers": {"number": str(number)} if number % 7 == 0 else {},
            "timestamp_ms": 1_700_000_000_000 + number,
        }
    )
    + "\n"
    for number in range(500)
)
FIELDS = ("partition", "timestamp_ms", "key", "value", "headers")
WAIT_SECONDS = 30


async def documents(cluster: LocalCluster, topic: str, *arguments: str) -> list[dict[str, object]]:
    """What `consume --json` prints, in the order of partitions and offsets."""
    ended = await tidelog(cluster, "consume", topic, "--json", *arguments)
    assert ended.status == ExitStatus.DONE, ended.err
    found = [json.loads(line) for line in ended.out.splitlines()]
    return sorted(found, key=lambda document: (document["partition"], document["offset"]))


async def filled(cluster: LocalCluster, name: str) -> str:
    """A topic of two partitions with the records of LINES."""
    topic = new_name(name)
    await create_topic(cluster, topic, partitions=2)
    produced = await tidelog(cluster, "produce", topic, "--format", "json", input_=LINES)
    assert produced.status == ExitStatus.DONE, produced.err
    assert produced.err.startswith("500 records ")
    return topic


async def test_settings_with_units_are_stored_as_numbers(cluster: LocalCluster) -> None:
    topic = new_name("units")
    setting = ("-c", "retention_ms=7d", "-c", "segment_bytes=64MiB")
    created = await tidelog(cluster, "topics", "create", topic, *setting, "--json")
    assert created.document()["config"] == {
        "retention_ms": "604800000",
        "segment_bytes": "67108864",
    }
    altered = await tidelog(
        cluster, "topics", "alter-config", topic, "--set", "retention_ms=unlimited"
    )
    assert "unlimited" in altered.out
    await until_in_sync(cluster, topic)
    assert (await describe(cluster, topic)).config["retention_ms"] == "-1"


async def test_a_pipe_copies_a_topic_exactly(cluster: LocalCluster) -> None:
    source = await filled(cluster, "source")
    copy = new_name("copy")
    await create_topic(cluster, copy, partitions=2)
    printed = await tidelog(cluster, "consume", source, "--format", "json")
    copied = await tidelog(cluster, "produce", copy, "--format", "json", input_=printed.out)
    assert copied.status == ExitStatus.DONE, copied.err
    originals = await documents(cluster, source)
    assert len(originals) == 500
    for original, other in zip(originals, await documents(cluster, copy), strict=True):
        assert [original[field] for field in FIELDS] == [other[field] for field in FIELDS]


async def test_times_keys_and_patterns_choose_records(cluster: LocalCluster) -> None:
    topic = await filled(cluster, "chosen")
    between = ("--since", "1700000000100", "--until", "1700000000200")
    assert len(await documents(cluster, topic, *between)) == 100
    assert len(await documents(cluster, topic, "--key", "k3", "--key-partition")) == 100
    storms = await tidelog(cluster, "consume", topic, "--grep", "^storm", *between)
    assert len(storms.out.splitlines()) == 10
    assert storms.err == "100 records scanned, 10 shown.\n"
    assert await documents(cluster, topic, "--since", "10m") == []


async def test_an_error_in_the_input_stops_after_the_lines_before_it(cluster: LocalCluster) -> None:
    topic = new_name("stopped")
    await create_topic(cluster, topic)
    lines = LINES.splitlines(keepends=True)
    broken = "".join([*lines[:100], "{}\n", *lines[100:]])
    ended = await tidelog(
        cluster, "produce", topic, "--format", "json", "--on-error", "stop", input_=broken
    )
    assert ended.status == ExitStatus.FAILED
    assert "line 101: has no value" in ended.err
    assert len(await documents(cluster, topic)) == 100


async def test_ctrl_c_ends_a_search_with_its_summary(cluster: LocalCluster) -> None:
    topic = await filled(cluster, "followed")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidelog.cli", "consume", topic, "--follow", "--grep", "storm"),
        *("--bootstrap", cluster.bootstrap),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS):
        for _ in range(50):
            assert (await process.stdout.readline()).startswith(b"storm ")
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert process.returncode == ExitStatus.DONE
    assert err.endswith(b"50 shown.\n")


async def test_a_load_is_measured_at_both_ends(cluster: LocalCluster) -> None:
    topic = new_name("load")
    await create_topic(cluster, topic, partitions=2)
    reading = asyncio.create_task(
        tidelog(cluster, "bench", "consume", topic, "--from", "end", "--records", "100", "--json")
    )
    written = await tidelog(
        *(cluster, "bench", "produce", topic, "--rate", "100", "--duration", "8s"),
        *("--record-size", "1KiB", "--keys", "10", "--json"),
    )  # fmt: skip
    produced = written.document()
    assert (produced["failed"], produced["acknowledged"]) == (0, produced["sent"])
    # An open loop sends all records that were due, however late.
    assert 790 <= produced["sent"] <= 801
    latency = produced["latency_ms"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    consumed = (await reading).document()
    assert consumed["records"] >= 100
    assert consumed["end_to_end_ms"]["p50"] > 0
    assert consumed["future_records"] == 0

    rejected = await tidelog(cluster, "bench", "produce", topic)
    assert rejected.status == ExitStatus.USAGE
    assert f"holds {produced['sent']} records" in rejected.err
    everything = (await tidelog(cluster, "bench", "consume", topic, "--json")).document()
    assert everything["records"] == produced["sent"]
