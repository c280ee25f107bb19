"""The positions of queries, from a driver's metrics (`tidelog.spark.watch`)."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tidelog.model import TopicPartition
from tidelog_pipeline.lag.samples import QueryPosition

_NEXT_OFFSET = "tidelog_spark_next_offset"


def query_positions(text: str) -> list[QueryPosition]:
    """Raises `ValueError` for a text that is not in the metrics format."""
    try:
        return [
            QueryPosition(
                sample.labels["query"] or sample.labels["query_id"],
                TopicPartition(sample.labels["topic"], int(sample.labels["partition"])),
                int(sample.value),
            )
            for family in text_string_to_metric_families(text)
            if family.name == _NEXT_OFFSET
            for sample in family.samples
        ]
    except KeyError as error:
        raise ValueError(f"{_NEXT_OFFSET} has no label {error}") from error
