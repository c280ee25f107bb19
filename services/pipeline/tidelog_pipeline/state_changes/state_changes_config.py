"""Configuration of the job `state-changes`."""

from __future__ import annotations

import datetime
from typing import Self

from pydantic import Field, model_validator

from tidelog_pipeline.pipeline_config import BrokersConfig, NameList


class StateChangesConfig(BrokersConfig):
    """Writes tables of the history of partitions, and a page about an incident."""

    logs: NameList = Field(
        default=[],
        description="log files of services (JSON lines, gzip too), or directories of them, "
        "separated by commas, in place of the topic __state_changes; a path or URI that all "
        "executors reach",
    )
    output: str = Field(
        description="directory of the tables, each of which is a directory of Parquet files"
    )
    report: str | None = Field(
        default=None, description="file for the page about the incident; default: no page"
    )
    since: datetime.datetime | None = Field(
        default=None,
        description="start of the reported time, such as 2026-01-31T08:30:00Z; default: the time "
        "of the first event",
    )
    until: datetime.datetime | None = Field(
        default=None, description="end of the reported time; default: the time of the last event"
    )

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        begin_ms, end_ms = self.window
        if begin_ms is not None and end_ms is not None and begin_ms >= end_ms:
            raise ValueError(f"since is {self.since} and until is {self.until}, which is no later")
        return self

    @property
    def window(self) -> tuple[int | None, int | None]:
        """In milliseconds since 1970; a time without an offset is in UTC."""
        return _ms(self.since), _ms(self.until)

    @property
    def service(self) -> str:
        return "pipeline-state-changes"


def _ms(time: datetime.datetime | None) -> int | None:
    if time is None:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return round(time.timestamp() * 1000)
