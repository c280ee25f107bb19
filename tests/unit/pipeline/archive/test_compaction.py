from datetime import UTC, datetime

import pytest

from tidelog_pipeline.archive.core.commits import AddedFile, ArchiveState
from tidelog_pipeline.archive.core.compaction import HOUR_MS, hours_to_compact

HOUR = "topic=sea/date=2026-11-22/hour=10"
ENDS_MS = int(datetime(2026, 11, 22, 11, tzinfo=UTC).timestamp() * 1000)


def state(*sizes: int) -> ArchiveState:
    files = {f"{HOUR}/{n}": AddedFile(f"{HOUR}/{n}", 10, size) for n, size in enumerate(sizes)}
    return ArchiveState(files={HOUR: files})


def chosen(found: ArchiveState, now_ms: int = ENDS_MS + HOUR_MS) -> list[tuple[str, int, int]]:
    hours = hours_to_compact(found, now_ms, HOUR_MS, target_bytes=100)
    return [(hour.path, hour.rows, hour.file_count) for hour in hours]


@pytest.mark.rule("archive-hour-exchanged-in-one-step")
def test_small_files_of_an_hour_are_merged_into_the_fewest() -> None:
    assert chosen(state(10, 20, 30)) == [(HOUR, 30, 1)]
    assert chosen(state(10, 49, 95)) == [(HOUR, 30, 2)]


def test_an_hour_of_large_files_is_unchanged() -> None:
    assert chosen(state(90, 95)) == []
    assert chosen(state(10)) == []
    assert chosen(state(10, 95)) == []


def test_an_hour_may_receive_late_records_for_a_while() -> None:
    assert chosen(state(10, 20), ENDS_MS + HOUR_MS - 1) == []


@pytest.mark.rule("archive-hour-exchanged-in-one-step")
def test_files_without_an_hour_are_unchanged() -> None:
    for times in ("date=+55840-01-01/hour=00", "date=__HIVE_DEFAULT_PARTITION__/hour=10"):
        path = f"topic=sea/{times}"
        files = {f"{path}/{n}": AddedFile(f"{path}/{n}", 10, 20) for n in range(2)}
        assert chosen(ArchiveState(files={path: files})) == []
