"""The days whose samples are rolled up. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

DAY_MS = 86_400_000
# A record has the time of its sample, and the log may be slightly out of order around midnight.
SLACK_MS = 600_000


class Days(NamedTuple):
    """A range of days; both ends are included."""

    first: date
    last: date

    @property
    def all(self) -> list[date]:
        count = (self.last - self.first).days + 1
        return [self.first + timedelta(days=n) for n in range(count)]

    @property
    def start_ms(self) -> int:
        return start_ms(self.first)

    @property
    def end_ms(self) -> int:
        return start_ms(self.last) + DAY_MS


def start_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


def day_of(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()


def incomplete_days(days: Days, oldest_ms: Iterable[int]) -> list[date]:
    """Returns the days of which the log has deleted samples, or may have.

    - `oldest_ms`: time of the first record of each partition from which records were deleted.
    """
    oldest = max(oldest_ms, default=0)
    return [day for day in days.all if start_ms(day) <= oldest]
