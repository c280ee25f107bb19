"""Configuration of a topic: its keys, their ranges and their defaults."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidelog.errors import ErrorCode, TidelogError
from tidelog.record_limits import (
    DEFAULT_MAX_BATCH_RECORDS,
    HIGHEST_MAX_BATCH_BYTES,
    HIGHEST_MAX_BATCH_RECORDS,
    LOWEST_MAX_BATCH_RECORDS,
)

UNLIMITED = -1
# The largest number that fits the 64-bit integers of other languages.
_MAX_NUMBER = 2**63 - 1
_MAX_DIGITS = len(str(_MAX_NUMBER))

_LimitOrUnlimited = Annotated[int, Field(ge=UNLIMITED, le=_MAX_NUMBER)]


class TopicConfig(BaseModel):
    """Every key of a topic's configuration. Immutable: a change creates a new object."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_insync_replicas: int | None = Field(
        default=None,
        ge=1,
        le=32,
        description="Replicas that must be in sync for acks=all; default min(2, factor).",
    )
    max_batch_bytes: int = Field(
        default=1 << 20,
        ge=1024,
        le=HIGHEST_MAX_BATCH_BYTES,
        description="Largest batch, in compressed bytes.",
    )
    max_batch_records: int = Field(
        default=DEFAULT_MAX_BATCH_RECORDS,
        ge=LOWEST_MAX_BATCH_RECORDS,
        le=HIGHEST_MAX_BATCH_RECORDS,
        description="Most records of a batch; producers send at most 16,384 in one.",
    )
    segment_bytes: int = Field(
        default=256 << 20,
        ge=64 << 10,
        le=1 << 30,
        description="A segment that would grow beyond this is rolled.",
    )
    segment_ms: int = Field(
        default=7 * 24 * 3_600_000,
        ge=1000,
        le=_MAX_NUMBER,
        description="A segment whose first batch is older than this is rolled.",
    )
    retention_ms: _LimitOrUnlimited = Field(
        default=7 * 24 * 3_600_000,
        description="Segments are deleted once neither a timestamp nor an append time in them is "
        "younger, and the leader's clock is not in doubt; keep hardware clocks in UTC; -1: never.",
    )
    retention_bytes: _LimitOrUnlimited = Field(
        default=UNLIMITED,
        description="Oldest segments beyond this size of a partition are deleted; a segment is "
        "rolled at this size at the latest, but not below 64 KiB, so a partition holds up to one "
        "segment more; -1: never.",
    )

    timestamp_type: Literal["create", "append"] = Field(
        default="create",
        description="What a record's timestamp is: create: the producer's time; append: when the "
        "leader appended it.",
    )
    timestamp_max_ahead_ms: _LimitOrUnlimited = Field(
        default=3_600_000,
        description="A batch with a timestamp further ahead of the leader's clock is rejected; -1: "
        "none is. A timestamp that is more than a day ahead keeps no segment, nor does any that "
        "is ahead with -1.",
    )

    durability: Literal["replicated", "synced"] = Field(
        default="replicated",
        description="When a replica counts as having a record: replicated: it has appended it; "
        "synced: it has synced it to disk.",
    )
    recovery: Literal["balanced", "manual"] = Field(
        default="balanced",
        description="When every in-sync replica has lost data: balanced: the best of them leads, "
        "marked as unclean; manual: an operator has to consent.",
    )
    unclean_leader_election: bool = Field(
        default=False,
        description="Whether any live replica may lead, which may lose records, while all "
        "in-sync replicas are unavailable.",
    )

    def min_isr(self, replication_factor: int) -> int:
        """Returns the min ISR for this replication factor."""
        if self.min_insync_replicas is None:
            return min(2, replication_factor)
        return self.min_insync_replicas

    def as_text(self) -> dict[str, str]:
        """Returns every key in the form in which a user gives it; empty: not set."""
        return {key: _as_text(value) for key, value in self.model_dump(mode="json").items()}

    @classmethod
    def check_keys(cls, keys: Iterable[str]) -> None:
        """Raises `TidelogError` (INVALID_CONFIG) for a key that does not exist."""
        for key in keys:
            if key not in cls.model_fields:
                close = difflib.get_close_matches(key, cls.model_fields, n=1)
                hint = (
                    f"did you mean {close[0]}?"
                    if close
                    else "known keys: " + ", ".join(sorted(cls.model_fields))
                )
                raise TidelogError(
                    ErrorCode.INVALID_CONFIG, f"topic configuration {key!r} does not exist; {hint}"
                )

    @classmethod
    def parse(cls, config: Mapping[str, str]) -> TopicConfig:
        """Parses the strings that a user gave.

        Raises `TidelogError` (INVALID_CONFIG), which names the key, the fault and the valid
        values.
        """
        raw: dict[str, Any] = dict(config)
        cls.check_keys(raw)
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0])
            raise TidelogError(
                ErrorCode.INVALID_CONFIG,
                f"topic configuration {key}={config[key]!r} is not valid: {first['msg']}; "
                f"{cls.model_fields[key].description}",
            ) from None

    @classmethod
    def parse_stored(cls, config: Mapping[str, str]) -> TopicConfig:
        """As `parse`, for a stored configuration.

        Reduces numbers beyond 64 bits, which earlier releases accepted, to the largest one.
        """
        return cls.parse({key: _within_64_bits(value) for key, value in config.items()})


def _within_64_bits(value: str) -> str:
    is_beyond = value.isdecimal() and (len(value) > _MAX_DIGITS or int(value) > _MAX_NUMBER)
    return str(_MAX_NUMBER) if is_beyond else value


def _as_text(value: str | int | bool | None) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
