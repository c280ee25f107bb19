"""Compares the replicas of a topic on disk, byte by byte."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidelog.log_dump import dump_log


def digest_of_replica(directory: Path, end_offset: int) -> tuple[int, str]:
    """Hashes the frames of a replica below `end_offset`.

    Returns the offset after the last complete batch, and the hash. Segments may begin elsewhere
    on each replica, but frames do not.
    """
    content = hashlib.sha256()
    reached = 0
    for segment, info in dump_log(directory):
        if info.fault is not None or info.header is None:
            raise ValueError(f"{segment} is damaged at byte {info.position}: {info.fault}")
        if info.header.next_offset > end_offset:
            break
        with segment.open("rb") as file:
            file.seek(info.position)
            content.update(file.read(info.size))
        reached = info.header.next_offset
    return reached, content.hexdigest()


def find_replica(data_dir: Path, topic: str, partition: int, topic_id: str) -> Path:
    return data_dir / "replicas" / f"{topic}-{partition}.{topic_id}"


def differing(
    data_dirs: Mapping[int, Path],
    topic: str,
    topic_id: str,
    replicas: Mapping[int, Sequence[int]],
    end_offsets: Mapping[int, int],
) -> list[str]:
    """Returns the differences below the high watermark; empty: all replicas are identical."""
    problems = []
    for partition, brokers in replicas.items():
        found = {
            broker: digest_of_replica(
                find_replica(data_dirs[broker], topic, partition, topic_id),
                end_offsets[partition],
            )
            for broker in brokers
        }
        reached = {broker: end for broker, (end, _) in found.items()}
        if set(reached.values()) != {end_offsets[partition]}:
            problems.append(
                f"{topic}/{partition} is committed to {end_offsets[partition]}, replicas end at "
                f"{reached}"
            )
        elif len({content for _, content in found.values()}) > 1:
            problems.append(f"{topic}/{partition}: same offsets, different bytes")
    return problems
