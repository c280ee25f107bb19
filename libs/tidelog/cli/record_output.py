"""Writes the records that `consume` shows, and counts them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidelog.cli.output import write_note
from tidelog.cli.record_decoding import ValueDecoding
from tidelog.cli.record_filter import RecordFilter
from tidelog.cli.record_format import RecordFormat, format_records
from tidelog.model import Record
from tidelog.phrases import plural

# Records of one poll: enough for throughput, few enough to stop soon.
POLL_RECORDS = 500


@dataclass(slots=True)
class RecordOutput:
    """Writes to stdout.

    - `max_records`: records that are shown; None: no limit.
    - `scanned`: records that were compared with the filter.
    """

    record_format: RecordFormat
    key_separator: bytes | None = None
    max_records: int | None = None
    filter: RecordFilter = field(default_factory=RecordFilter)
    decoding: ValueDecoding | None = None
    scanned: int = 0
    shown: int = 0

    @property
    def is_full(self) -> bool:
        return self.max_records is not None and self.shown >= self.max_records

    @property
    def poll_limit(self) -> int:
        if self.max_records is None or self.filter.is_set:
            return POLL_RECORDS
        return min(POLL_RECORDS, self.max_records - self.shown)

    def write(self, records: Sequence[Record]) -> None:
        """Writes those that the filter accepts, until `is_full`."""
        chosen = self._chosen(records)
        if chosen:
            self.shown += len(chosen)
            out = sys.stdout.buffer
            out.write(format_records(chosen, self.record_format, self.key_separator, self.decoding))
            out.flush()

    @contextmanager
    def summarized(self) -> Iterator[None]:
        """Writes the summary at the end, also after an error or Ctrl-C. After a closed pipe there
        is no reader."""
        try:
            yield
        except BrokenPipeError:
            raise
        except BaseException:
            self._summarize()
            raise
        self._summarize()

    def _chosen(self, records: Sequence[Record]) -> list[Record]:
        room = len(records) if self.max_records is None else self.max_records - self.shown
        if not self.filter.is_set:
            self.scanned += min(len(records), room)
            return list(records[:room])
        chosen: list[Record] = []
        for record in records:
            if len(chosen) >= room:
                break
            self.scanned += 1
            if self.filter.accepts(record):
                chosen.append(record)
        return chosen

    def _summarize(self) -> None:
        if self.filter.is_set:
            write_note(f"{plural(self.scanned, 'record')} scanned, {self.shown:,} shown.")
        undecoded = self.decoding.report() if self.decoding is not None else ""
        if undecoded:
            write_note(undecoded)
