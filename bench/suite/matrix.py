"""The cases of producing that are measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from tidelog.model import Acks, Codec

SIZES = (100, 1 << 10, 10 << 10, 100 << 10)
FACTORS = (1, 3)
PARTITIONS = (1, 12, 200)
CODECS = (Codec.NONE, Codec.ZSTD)
BATCH_BYTES = 64 << 10
_ACKS = {Acks.LEADER: "1", Acks.ALL: "all"}


class Case(NamedTuple):
    """A case. `by_record`: uses `send` for each record, instead of `send_many` for each batch."""

    record_bytes: int = 1 << 10
    acks: Acks = Acks.ALL
    factor: int = 3
    partitions: int = 12
    codec: Codec = Codec.NONE
    by_record: bool = False

    @property
    def records_per_batch(self) -> int:
        return max(1, BATCH_BYTES // self.record_bytes)

    @property
    def name(self) -> str:
        how = ", record by record" if self.by_record else ""
        return (
            f"{size_text(self.record_bytes)}, acks={_ACKS[self.acks]}, factor {self.factor}, "
            f"{self.partitions} partition{'s' if self.partitions > 1 else ''}, "
            f"{self.codec.name.lower()}{how}"
        )

    def as_json(self) -> dict[str, object]:
        return {
            "record_bytes": self.record_bytes,
            "acks": _ACKS[self.acks],
            "factor": self.factor,
            "partitions": self.partitions,
            "compression": self.codec.name.lower(),
            "by_record": self.by_record,
        }


# The cases with bounds, which the others are compared with.
USUAL = Case()
AT_ONCE_BY_LEADER = USUAL._replace(acks=Acks.LEADER)
ONE_REPLICA = USUAL._replace(factor=1)
BY_RECORD = USUAL._replace(by_record=True)


def full() -> list[Case]:
    cases = [
        Case(size, acks, factor, partitions, codec)
        for codec, partitions, factor, acks, size in product(
            CODECS, PARTITIONS, FACTORS, _ACKS, SIZES
        )
    ]
    return [*cases, BY_RECORD]


def diagonal() -> list[Case]:
    """Returns the usual case, and those that differ from it in one parameter."""
    others = [
        *(USUAL._replace(record_bytes=size) for size in SIZES),
        *(USUAL._replace(acks=acks) for acks in _ACKS),
        *(USUAL._replace(factor=factor) for factor in FACTORS),
        *(USUAL._replace(partitions=partitions) for partitions in PARTITIONS),
        *(USUAL._replace(codec=codec) for codec in CODECS),
        BY_RECORD,
    ]
    return [USUAL, *(case for case in dict.fromkeys(others) if case != USUAL)]


def cases(*, all_of_them: bool) -> Sequence[Case]:
    return full() if all_of_them else diagonal()


def size_text(size: int) -> str:
    """
    >>> size_text(100), size_text(10 << 10)
    ('100 B', '10 KiB')
    """
    return f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B"
