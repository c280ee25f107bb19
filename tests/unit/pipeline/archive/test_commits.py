import pytest

from tidelog.errors import TidelogError
from tidelog_pipeline.archive.commits import (
    AddedFile,
    Archived,
    ArchiveState,
    Commit,
    ReadRange,
    commit_from_json,
    commit_to_json,
    state_from_json,
    state_to_json,
)
from tidelog_pipeline.archive.spans import LogId, Span

LOG = LogId("sea", "id-1", 0)
HOUR = "topic=sea/date=2026-11-22/hour=10"


def batch(number: int, offsets: Span, epochs: dict[int, Span]) -> Commit:
    return Commit(
        "_archive/staging/1",
        1_700_000_000_000,
        (AddedFile(f"{HOUR}/{number}.parquet", offsets.size, 1_000),),
        (ReadRange(LOG, offsets, offsets.size, 1, epochs),),
        "query",
        number,
    )


def state() -> ArchiveState:
    found = ArchiveState()
    found.apply(batch(0, Span(0, 10), {3: Span(0, 10)}))
    found.apply(batch(1, Span(10, 30), {3: Span(10, 15), 5: Span(15, 30)}))
    return found


def test_commits_add_up() -> None:
    found = state()
    assert found.number == 2
    assert found.covered == {LOG: (Span(0, 30),)}
    assert found.epochs == {LOG: {3: (Span(0, 15),), 5: (Span(15, 30),)}}
    assert (found.rows[LOG], found.unread[LOG]) == (30, 2)
    assert found.paths == [f"{HOUR}/0.parquet", f"{HOUR}/1.parquet"]


def test_a_batch_that_was_committed_is_known_and_no_other() -> None:
    found = state()
    assert found.has_batch("query", 1)
    assert not found.has_batch("query", 2)
    assert not found.has_batch("another", 0)


def test_a_compaction_takes_the_place_of_an_hour_and_adds_no_rows() -> None:
    found = state()
    merged = AddedFile(f"{HOUR}/merged.parquet", 30, 1_500)
    found.apply(Commit("_archive/staging/3", 0, (merged,), replaces=HOUR))
    assert found.paths == [merged.path]
    assert found.rows[LOG] == 30


def test_records_that_are_there_are_known_by_their_epoch() -> None:
    """After an unclean election other records have their offsets, in a later epoch."""
    wanted = [(LOG, Span(12, 20)), (LogId("sea", "id-2", 0), Span(0, 99))]
    assert Archived.within(state(), wanted) == [
        Archived(LOG, 3, Span(0, 15)),
        Archived(LOG, 5, Span(15, 30)),
    ]
    assert Archived.within(state(), [(LOG, Span(30, 40))]) == []


def test_their_forms_in_json_are_read_as_they_were_written() -> None:
    commit = batch(7, Span(0, 10), {3: Span(0, 10)})
    assert commit_from_json(commit_to_json(commit), "7.json") == commit
    assert state_from_json(state_to_json(state()), "2.json") == state()


@pytest.mark.parametrize("text", [b"", b"[]", b'{"version": 2}', b'{"version": 1}'])
def test_what_is_damaged_or_of_another_version_is_told(text: bytes) -> None:
    for read in (commit_from_json, state_from_json):
        with pytest.raises(TidelogError, match=r"12.json is no part of an archive"):
            read(text, "12.json")
