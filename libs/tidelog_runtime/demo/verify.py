"""Reads a whole topic in a process of its own and compares it with the source files.

    python -m tidelog_runtime.demo.verify --bootstrap ADDRESSES --topic NAME --acknowledged FILE

`FILE` holds the key of each acknowledged record, one a line. Prints one JSON object:
`read`, `duplicates`, `wrong`, `unexpected` (read, yet never acknowledged) and `lost`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

from tidelog.client import Consumer
from tidelog_runtime.demo.source import Source, digest, path_of

READ_TIMEOUT_S = 120.0


async def read_keys(
    bootstrap: str, topic: str, hashes: dict[str, bytes]
) -> tuple[Counter[bytes], int]:
    """Returns how often each key was read, and how many values differ from their files."""
    keys: Counter[bytes] = Counter()
    wrong = 0
    async with asyncio.timeout(READ_TIMEOUT_S), Consumer(bootstrap) as consumer:
        partitions = await consumer.partitions_of(topic)
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        unfinished = {p for p, end in ends.items() if end > 0}
        while unfinished:
            for batch in await consumer.poll_batches():
                columns = batch.columns()
                for key, value in zip(columns.keys, columns.values, strict=True):
                    assert key is not None
                    assert value is not None
                    keys[key] += 1
                    wrong += digest(value) != hashes.get(path_of(key))
                if batch.next_offset >= ends[batch.partition]:
                    unfinished.discard(batch.partition)
    return keys, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="verify", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--acknowledged", required=True, type=Path)
    arguments = parser.parse_args()
    acknowledged = set(arguments.acknowledged.read_bytes().split(b"\n")) - {b""}
    reading = read_keys(arguments.bootstrap, arguments.topic, Source().hashes())
    keys, wrong = asyncio.run(reading)
    found = {
        "read": keys.total(),
        "duplicates": keys.total() - len(keys),
        "wrong": wrong,
        "unexpected": len(keys.keys() - acknowledged),
        "lost": len(acknowledged - keys.keys()),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
