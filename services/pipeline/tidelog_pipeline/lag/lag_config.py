"""Configuration of the job `lag`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from tidelog_pipeline.pipeline_config import BrokersConfig, DirectoryPath
from tidelog_pipeline.storage.directory import Directory, directory_at
from tidelog_runtime.config import AddressList


class LagConfig(BrokersConfig):
    topic: str = Field(default="tidelog-lag", description="topic of the samples")

    @property
    def service(self) -> str:
        return "pipeline-lag"

    @classmethod
    def also_in_file(cls) -> frozenset[str]:
        """Both actions may share one file."""
        return frozenset(name for one in ACTIONS.values() for name in one.model_fields)


class SampleConfig(LagConfig):
    """Writes a record for each follower of each partition, and for each partition that a query of a
    named Spark driver reads."""

    drivers: AddressList = Field(
        default=[], description="host:port of tidelog.spark.watch, separated by commas"
    )
    create: bool = Field(
        default=False, description="whether to create the topic if it does not exist"
    )
    every_seconds: int = Field(default=5, ge=1, description="interval of samples")
    rounds: int | None = Field(
        default=None,
        ge=1,
        description="number of samples after which the job ends; default: no end",
    )

    @property
    def every_ms(self) -> int:
        return self.every_seconds * 1000


class RollupConfig(LagConfig):
    """Writes tables of samples by minute, hour and day."""

    output: DirectoryPath = Field(
        description="directory of the tables, which this machine and all executors see under one "
        "path"
    )
    since: datetime.date | None = Field(
        default=None, description="first day, in UTC; default: the day before until"
    )
    until: datetime.date | None = Field(default=None, description="last day; default: today")

    @model_validator(mode="after")
    def _check_days(self) -> Self:
        if self.since and self.until and self.since > self.until:
            raise ValueError(f"since is {self.since}, and until is {self.until}, which is earlier")
        return self

    @property
    def directory(self) -> Directory:
        return directory_at(self.output)


ACTIONS: Mapping[str, type[LagConfig]] = {"sample": SampleConfig, "rollup": RollupConfig}
