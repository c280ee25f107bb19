"""Configuration of the job `archive`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tidelog_pipeline.archive.core.value_format import ValueKind
from tidelog_pipeline.archive.layout import ArchiveLayout
from tidelog_pipeline.pipeline_config import BrokersConfig, DirectoryPath, NameList, PipelineConfig
from tidelog_pipeline.storage.directory import directory_at
from tidelog_runtime.config import Address


def _check_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression ({error})") from None
    return value


Pattern = Annotated[str, AfterValidator(_check_pattern)]

_SETTINGS_OF_KIND = {
    ValueKind.RAW: (),
    ValueKind.JSON: ("value_schema",),
    ValueKind.PROTOBUF: ("descriptors", "message"),
}


class ArchiveConfig(PipelineConfig):
    option_to_flag: ClassVar[Mapping[str, str]] = {
        "failOnDataLoss to false": "--on-data-loss to continue",
        "the option onDamage to skip": "--on-data-loss to continue",
        "begin with a new checkpointLocation": "begin another archive (--output)",
        "startingOffsets": "--since",
        "startingTimestamp": "--since",
        "endingOffsets": "--until",
        "endingTimestamp": "--until",
        "subscribePattern": "--pattern",
        "subscribe": "--topics",
        "bootstrap.servers": "--bootstrap",
        "maxOffsetsPerTrigger": "--max-offsets",
    }

    output: DirectoryPath = Field(
        description="directory of the archive, which this machine and all executors see under one "
        "path; the files are topic=sea/date=2026-11-22/hour=10/part-....parquet, by the records' "
        "times in UTC"
    )

    state_directory: DirectoryPath | None = Field(
        default=None,
        description="directory of the commit log, the checkpoint and the files that are not "
        "committed yet, on the file system of output, and the same for all actions; default: "
        "OUTPUT.state",
    )

    @property
    def layout(self) -> ArchiveLayout:
        """The places of the archive. Raises `JobError`."""
        state = self.state_directory
        return ArchiveLayout(
            directory_at(self.output), None if state is None else directory_at(state).root
        )

    @property
    def service(self) -> str:
        return "pipeline-archive"

    @classmethod
    def also_in_file(cls) -> frozenset[str]:
        """All actions of an archive may share one file."""
        return frozenset(name for one in ACTIONS.values() for name in one.model_fields)


class LogReadingConfig(ArchiveConfig, BrokersConfig):
    """Settings of actions that read records which a log may have lost."""

    on_data_loss: Literal["fail", "continue"] = Field(
        default="fail",
        description="where records were deleted, cut, or damaged on the last disk that held them: "
        "run and backfill leave them out and record their offsets, reconcile compares the others",
    )


class ArchivingConfig(LogReadingConfig):
    """Settings of actions that write records to an archive."""

    topics: NameList = Field(default=[], description="names of topics, separated by commas")
    value: ValueKind | None = Field(
        default=None,
        description="what values are: raw (bytes as they are), json or protobuf; default: what "
        "the archive has, raw for a new one",
    )
    value_schema: str | None = Field(
        default=None,
        description='of json: "id BIGINT, name STRING", or a file with that, or with what '
        "StructType.json() gives",
    )
    descriptors: Path | None = Field(
        default=None,
        description="of protobuf: what protoc --include_imports --descriptor_set_out=FILE writes",
    )
    message: str | None = Field(
        default=None, description="of protobuf: the message's full name, as sea.v1.Tide"
    )
    keep_raw: bool = Field(
        default=False, description="whether the column raw keeps the bytes that a value was read of"
    )
    max_offsets: int = Field(default=5_000_000, ge=1, description="max. offsets of one commit")
    strict: bool = Field(
        default=False,
        description="whether a value that is not of the schema is an error; else it is kept as it "
        "is in the column unread",
    )

    @model_validator(mode="after")
    def _has_what_its_values_need(self) -> Self:
        needed = _SETTINGS_OF_KIND[self.value] if self.value else ()
        for kind, names in _SETTINGS_OF_KIND.items():
            for name in names:
                is_set = getattr(self, name) is not None
                if is_set and name not in needed:
                    raise ValueError(f"{name} needs value = {kind}; set that as well")
                if name in needed and not is_set:
                    raise ValueError(f"{name} is not set, which value = {kind} needs")
        if self.keep_raw and not needed:
            raise ValueError("keep_raw is for value = json or protobuf; raw values are kept anyway")
        return self


class CompactConfig(ArchiveConfig):
    """Writes few large files instead of many small ones, of hours that are over."""

    target_mb: int = Field(default=128, ge=1, description="approximate size of a file")
    closed_minutes: int = Field(
        default=60, ge=1, description="time after its end at which an hour is compacted"
    )

    @property
    def target_bytes(self) -> int:
        return self.target_mb << 20

    @property
    def closed_after_ms(self) -> int:
        return self.closed_minutes * 60_000


class RunConfig(ArchivingConfig, CompactConfig):
    """Archives what has come since the last run."""

    pattern: Pattern | None = Field(
        default=None, description="in place of topics: the topics whose full names match"
    )
    every_seconds: int | None = Field(
        default=None,
        ge=1,
        description="runs until it is stopped, with a commit at this interval; default: ends when "
        "everything present at its start is archived",
    )
    compaction: bool = Field(
        default=True, description="whether hours are also compacted; see the action compact"
    )
    metrics_listen: Address | None = Field(
        default=None,
        description="host:port to serve the progress as Prometheus metrics on; default: none",
    )

    @model_validator(mode="after")
    def _has_topics(self) -> Self:
        if bool(self.topics) == (self.pattern is not None):
            raise ValueError("set either topics (as sea,land) or pattern (as sea-.*)")
        return self


class BackfillConfig(ArchivingConfig):
    """Archives what is not there of a range of offsets or of time."""

    since: str = Field(
        description="where to begin: a time as 2026-11-22T10:00 (UTC), earliest, or offsets as "
        '{"sea": {"0": 23}}'
    )
    until: str = Field(
        default="latest", description="where to end (exclusive): a time, latest, or offsets"
    )


class ReconcileConfig(LogReadingConfig):
    """Counts by partition what the log has and what the archive has; changes nothing."""

    deep: bool = Field(
        default=False,
        description="whether to compare every byte of the files with its checksum, and every row "
        "with its record while the log has it",
    )


class RepairConfig(ArchiveConfig, BrokersConfig):
    """Restores the rows of lost and damaged files, and reports those that cannot be restored."""

    max_offsets: int = Field(default=5_000_000, ge=1, description="max. offsets of one commit")
    dry_run: bool = Field(default=False, description="whether to only report what is wrong")


class ExpireConfig(ArchiveConfig):
    """Removes the files of hours that ended before a time."""

    before: str = Field(description="hours that ended by then: a time as 2026-11-22T10:00 (UTC)")
    dry_run: bool = Field(default=False, description="whether to only report what would be removed")


ACTIONS: Mapping[str, type[ArchiveConfig]] = {
    "run": RunConfig,
    "backfill": BackfillConfig,
    "compact": CompactConfig,
    "reconcile": ReconcileConfig,
    "repair": RepairConfig,
    "expire": ExpireConfig,
}
