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
        """The directories of the archive. Raises `JobError`."""
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
        description="reaction to records that were deleted, truncated, or damaged on the last disk "
        "that held them; with continue, run and backfill leave them out and record their offsets, "
        "and reconcile compares the others",
    )


class ArchivingConfig(LogReadingConfig):
    """Settings of actions that write records to an archive."""

    topics: NameList = Field(default=[], description="names of topics, separated by commas")
    value: ValueKind | None = Field(
        default=None,
        description="format of values: raw (bytes), json or protobuf; default: the format of the "
        "archive, or raw for a new one",
    )
    value_schema: str | None = Field(
        default=None,
        description='schema of json values, such as "id BIGINT, name STRING", or a file with a '
        "schema in that form or as StructType.json() returns it",
    )
    descriptors: Path | None = Field(
        default=None,
        description="file with the descriptors of protobuf values, from "
        "protoc --include_imports --descriptor_set_out=FILE",
    )
    message: str | None = Field(
        default=None, description="full name of the message of protobuf values, such as sea.v1.Tide"
    )
    keep_raw: bool = Field(
        default=False, description="whether the column raw keeps the bytes of each value"
    )
    max_offsets: int = Field(
        default=5_000_000, ge=1, description="maximum of offsets in one commit"
    )
    strict: bool = Field(
        default=False,
        description="whether a value that does not match the schema is an error; otherwise the "
        "column unread keeps its bytes",
    )

    @model_validator(mode="after")
    def _check_value_settings(self) -> Self:
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
    """Rewrites the small files of ended hours as few large ones."""

    target_mb: int = Field(default=128, ge=1, description="approximate size of a file")
    closed_minutes: int = Field(
        default=60, ge=1, description="minutes from the end of an hour until it is compacted"
    )

    @property
    def target_bytes(self) -> int:
        return self.target_mb << 20

    @property
    def closed_after_ms(self) -> int:
        return self.closed_minutes * 60_000


class RunConfig(ArchivingConfig, CompactConfig):
    """Archives the records that are new since the last run."""

    pattern: Pattern | None = Field(
        default=None, description="regular expression of full topic names, in place of topics"
    )
    every_seconds: int | None = Field(
        default=None,
        ge=1,
        description="interval of commits of a run that continues until it is stopped; default: the "
        "run ends when all records that existed at its start are archived",
    )
    compaction: bool = Field(
        default=True, description="whether hours are also compacted; see the action compact"
    )
    metrics_listen: Address | None = Field(
        default=None,
        description="host:port to serve the progress as Prometheus metrics on; default: none",
    )

    @model_validator(mode="after")
    def _check_topics(self) -> Self:
        if bool(self.topics) == (self.pattern is not None):
            raise ValueError("set either topics (as sea,land) or pattern (as sea-.*)")
        return self


class BackfillConfig(ArchivingConfig):
    """Archives the missing records of a range of offsets or of time."""

    since: str = Field(
        description="start of the range: a time such as 2026-11-22T10:00 (UTC), earliest, or "
        "offsets such as "
        '{"sea": {"0": 23}}'
    )
    until: str = Field(
        default="latest", description="end of the range (exclusive): a time, latest, or offsets"
    )


class ReconcileConfig(LogReadingConfig):
    """Compares the records of log and archive by partition; changes nothing."""

    deep: bool = Field(
        default=False,
        description="whether to compare every byte of the files with its checksum, and every row "
        "with its record while the log has it",
    )


class RepairConfig(ArchiveConfig, BrokersConfig):
    """Restores the rows of lost and damaged files, and reports those that cannot be restored."""

    max_offsets: int = Field(
        default=5_000_000, ge=1, description="maximum of offsets in one commit"
    )
    dry_run: bool = Field(default=False, description="whether to only report what is wrong")


class ExpireConfig(ArchiveConfig):
    """Removes the files of hours that ended before a time."""

    before: str = Field(
        description="time at which these hours have ended, such as 2026-11-22T10:00 (UTC)"
    )
    dry_run: bool = Field(default=False, description="whether to only report what would be removed")


ACTIONS: Mapping[str, type[ArchiveConfig]] = {
    "run": RunConfig,
    "backfill": BackfillConfig,
    "compact": CompactConfig,
    "reconcile": ReconcileConfig,
    "repair": RepairConfig,
    "expire": ExpireConfig,
}
