"""Log segments with intact frames."""

from pathlib import Path

from tidelog.batch import broker_crc32c, producer_crc32c
from tidelog.log_format import encode_frame_header, segment_name
from tidelog.model import Batch, BatchHeader


def write_segment(replica: Path, batches: int) -> None:
    replica.mkdir(parents=True)
    content = b""
    for offset in range(batches):
        records = b"record %d" % offset
        header = BatchHeader(offset, 0, 0, 0, 0, 0, 1, 0, 0, -1, -1, -1)
        header = header._replace(crc32c=producer_crc32c(header, records))
        crc = broker_crc32c(offset, 0, 0, header.crc32c)
        whole = Batch(header._replace(broker_crc32c=crc), records)
        content += encode_frame_header(whole) + records
    (replica / segment_name(0)).write_bytes(content)
