"""The records of a copy, and their check. They are read without Spark, by the client and from
files."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.client import SyncConsumer, SyncProducer

KEYS = 1_000
NUMBER_BYTES = 8
DIGEST_BYTES = 16
CHUNK_RECORDS = 50_000
_POOL = random.Random(7).randbytes(1 << 16)


def key_of(number: int) -> bytes:
    return b"%d" % (number % KEYS)


def value_of(number: int, value_bytes: int) -> bytes:
    """Returns a value that begins with its number."""
    first = number * 31 % (len(_POOL) - value_bytes)
    return number.to_bytes(NUMBER_BYTES, "big") + _POOL[first : first + value_bytes - NUMBER_BYTES]


def fill(bootstrap: str, topic: str, records: int, partitions: int, value_bytes: int) -> None:
    """Fills one partition after another."""
    with SyncProducer(bootstrap) as producer:
        for partition in range(partitions):
            for numbers in _chunks(range(partition, records, partitions)):
                producer.send_many(
                    topic,
                    [value_of(number, value_bytes) for number in numbers],
                    [key_of(number) for number in numbers],
                    partition=partition,
                )


class Found(NamedTuple):
    """The content of a topic or table.

    - `digest`: of all keys and values, by partition in the order of their offsets, or independent
      of partition and order.
    - `numbers`: the numbers of all records.
    """

    digest: str
    numbers: np.ndarray[Any, np.dtype[np.int64]]


class Missing(NamedTuple):
    lost: int
    duplicated: int


def compare(source: Found, copy: Found) -> Missing:
    there = np.unique(copy.numbers)
    lost = np.setdiff1d(source.numbers, there).size
    return Missing(int(lost), int(copy.numbers.size - there.size))


def in_topic(bootstrap: str, topic: str, *, ordered: bool) -> Found:
    with SyncConsumer(bootstrap) as consumer:
        partitions = consumer.assign_topic(topic)
        ends = consumer.end_offsets(partitions)
        digest = _Digest(len(partitions), ordered=ordered)
        while any((consumer.position(p) or 0) < end for p, end in ends.items()):
            for record in consumer.poll(1_000, CHUNK_RECORDS):
                digest.add(record.partition, record.key, record.value)
    return digest.found()


def in_table(path: Path, partitions: int, *, ordered: bool) -> Found:
    """Reads the files that the table's log names. Other files are left from failed attempts."""
    digest = _Digest(partitions, ordered=ordered)
    files = [pq.ParquetFile(file).read() for file in files_of(path)]
    rows = pa.concat_tables(files).sort_by([("partition", "ascending"), ("offset", "ascending")])
    for batch in rows.to_batches(CHUNK_RECORDS):
        columns = (batch.column(name).to_pylist() for name in ("partition", "key", "value"))
        for partition, key, value in zip(*columns, strict=True):
            digest.add(partition, key, value)
    return digest.found()


def files_of(table: Path) -> list[Path]:
    """Returns the files that the log of the table names.

    The log has a version, and then one entry a line. A compacted log repeats earlier entries.
    """
    found = set()
    for log in (table / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            _, *entries = log.read_text().splitlines()
            found |= {Path(json.loads(entry)["path"].removeprefix("file:")) for entry in entries}
    return sorted(found)


class _Digest:
    def __init__(self, partitions: int, *, ordered: bool) -> None:
        self._ordered = ordered
        # For data without an order: the sum of the records' digests.
        self._sum = 0
        self._hashes = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in range(partitions)]
        self._numbers: list[int] = []

    def add(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        assert key is not None, "every record has one"
        assert value is not None, "every record has one"
        lengths = len(key).to_bytes(4, "big") + len(value).to_bytes(4, "big")
        content = lengths + key + value
        if self._ordered:
            self._hashes[partition].update(content)
        else:
            one = hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
            self._sum = (self._sum + int.from_bytes(one)) % (1 << 8 * DIGEST_BYTES)
        self._numbers.append(int.from_bytes(value[:NUMBER_BYTES], "big"))

    def found(self) -> Found:
        parts = [h.digest() for h in self._hashes]
        if not self._ordered:
            parts = [self._sum.to_bytes(DIGEST_BYTES)]
        of_all = hashlib.blake2b(b"".join(parts), digest_size=DIGEST_BYTES)
        return Found(of_all.hexdigest(), np.array(self._numbers, np.int64))


def _chunks(numbers: Iterable[int]) -> Iterator[tuple[int, ...]]:
    rest = iter(numbers)
    while chunk := tuple(islice(rest, CHUNK_RECORDS)):
        yield chunk
