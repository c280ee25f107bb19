"""Settings of every job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode, SettingsConfigDict

from tidelog_pipeline.storage.directory import directory_at
from tidelog_runtime.config import AddressList, ProgramConfig, split_list


def _split_pairs(value: Any) -> Any:
    """Splits a table that a variable or a flag gives as one string."""
    if not isinstance(value, str):
        return value
    pairs = {}
    for item in split_list(value):
        name, separator, setting = item.partition("=")
        if not separator or not name:
            raise ValueError(
                f"{item!r} is not a setting; give name=value, such as spark.executor.memory=2g"
            )
        pairs[name] = setting
    return pairs


def _check_directory(value: str) -> str:
    try:
        directory_at(value)
    except ValueError as error:
        raise ValueError(f"{value!r} {error}") from None
    return value


SettingTable = Annotated[dict[str, str], NoDecode, BeforeValidator(_split_pairs)]
NameList = Annotated[list[str], NoDecode, BeforeValidator(split_list)]
DirectoryPath = Annotated[str, AfterValidator(_check_directory)]


class PipelineConfig(ProgramConfig):
    model_config = SettingsConfigDict(cli_implicit_flags=True)

    # Replaces names of the data source's options in messages by the flags of the job.
    option_to_flag: ClassVar[Mapping[str, str]] = {}

    spark_master: str | None = Field(
        default=None,
        description="Spark's master, such as local[2] or spark://host:7077; default: the master "
        "of spark-submit or spark-defaults.conf, or local[*]",
    )
    spark_conf: SettingTable = Field(
        default={},
        description="settings of Spark as name=value, separated by commas; in a file, a table",
    )


class BrokersConfig(PipelineConfig):
    """Settings of a job that connects to a cluster."""

    bootstrap: AddressList = Field(
        default=["127.0.0.1:7501", "127.0.0.1:7502", "127.0.0.1:7503"],
        min_length=1,
        description="host:port of some brokers, separated by commas; the job finds the others",
    )

    @property
    def bootstrap_servers(self) -> str:
        """The addresses in the form of the data source."""
        return ",".join(self.bootstrap)
