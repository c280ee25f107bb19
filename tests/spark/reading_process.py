"""`python -m spark.reading_process BOOTSTRAP TOPIC END`: reads partition 0 up to an offset as a
task does, and prints the number of records and the memory that it took."""

from __future__ import annotations

import json
import resource
import sys

from pyspark.sql.pandas.types import to_arrow_schema

from tidelog.client import SyncAdmin
from tidelog.model import TopicPartition
from tidelog.spark.columns import COLUMNS, schema_of
from tidelog.spark.planning import OffsetRange
from tidelog.spark.range_reader import read_range
from tidelog.spark.stream_offsets import ReadTo

BUFFER_BYTES = 4 << 20


def main(bootstrap: str, topic: str, end: int) -> None:
    with SyncAdmin(bootstrap) as admin:
        description = admin.describe_topic(topic)
    requested = OffsetRange(
        TopicPartition(topic, 0),
        description.topic_id,
        description.create_revision,
        ReadTo(0),
        ReadTo(end),
    )
    schema = to_arrow_schema(schema_of(COLUMNS), timezone="UTC")
    batches = read_range(
        bootstrap, requested, schema, buffer_bytes=BUFFER_BYTES, fail_on_data_loss=True
    )
    records = sum(batch.num_rows for batch in batches)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stdout.write(json.dumps({"records": records, "max_rss_mb": kilobytes / 1024}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
