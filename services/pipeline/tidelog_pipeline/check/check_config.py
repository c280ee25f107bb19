"""Configuration of the job `check`."""

from __future__ import annotations

from pydantic import Field

from tidelog_pipeline.pipeline_config import PipelineConfig


class CheckConfig(PipelineConfig):
    """Checks the history that clients recorded, like `tidelog check-history`."""

    history: str = Field(
        description="file with a history, or directory whose files, in the order of their names, "
        "are one history; a path, or a URI (s3://, gs://, hdfs://), that all executors reach",
    )
    range_bytes: int = Field(
        default=32 << 20,
        ge=1 << 10,
        le=1 << 30,
        description="bytes of the history that one task decodes",
    )

    @property
    def service(self) -> str:
        return "pipeline-check"
