import pytest

from tidelog.errors import TidelogError
from tidelog_pipeline.archive.core.commit_json import (
    DamagedCommitError,
    commit_from_json,
    commit_to_json,
    state_from_json,
    state_to_json,
)
from tidelog_pipeline.archive.core.commits import (
    AddedFile,
    Archived,
    ArchiveState,
    Commit,
    DamagedOffsets,
    ReadRange,
    RemovedRows,
)
from tidelog_pipeline.archive.core.spans import LogId, Span

LOG = LogId("sea", "id-1", 0)
SHA256 = "ab" * 32
HOUR = "topic=sea/date=2026-11-22/hour=10"


def batch(number: int, offsets: Span, epochs: dict[int, Span]) -> Commit:
    return Commit(
        "staging/000000000001",
        1_700_000_000_000,
        (AddedFile(f"{HOUR}/{number}.parquet", offsets.size, 1_000, SHA256),),
        (ReadRange(LOG, offsets, offsets.size, 1, epochs),),
        "query",
        number,
    )


def state() -> ArchiveState:
    found = ArchiveState()
    found.apply(batch(0, Span(0, 10), {3: Span(0, 10)}))
    found.apply(batch(1, Span(10, 30), {3: Span(10, 15), 5: Span(15, 30)}))
    return found


def test_commits_accumulate() -> None:
    found = state()
    assert found.number == 2
    assert found.covered == {LOG: (Span(0, 30),)}
    assert found.epochs == {LOG: {3: (Span(0, 15),), 5: (Span(15, 30),)}}
    assert (found.rows[LOG], found.unread[LOG]) == (30, 2)
    assert found.paths == [f"{HOUR}/0.parquet", f"{HOUR}/1.parquet"]


def test_a_compaction_replaces_the_files_of_an_hour_and_adds_no_rows() -> None:
    found = state()
    merged = AddedFile(f"{HOUR}/merged.parquet", 30, 1_500)
    found.apply(Commit("staging/000000000003", 0, (merged,), replaces=HOUR))
    assert found.paths == [merged.path]
    assert found.rows[LOG] == 30


@pytest.mark.rule("archive-records-known-without-checkpoint")
def test_archived_records_are_known_by_their_epoch() -> None:
    """After an unclean election other records have their offsets, in a later epoch."""
    expected = [(LOG, Span(12, 20)), (LogId("sea", "id-2", 0), Span(0, 99))]
    assert Archived.within(state(), expected) == [
        Archived(LOG, 3, Span(0, 15)),
        Archived(LOG, 5, Span(15, 30)),
    ]
    assert Archived.within(state(), [(LOG, Span(30, 40))]) == []


def test_rows_of_removed_files_are_expired_or_lost() -> None:
    found = state()
    first, second = found.paths
    expired = Commit(
        "",
        0,
        removed=(first,),
        expired=(RemovedRows(LOG, 10, (Span(0, 10),)),),
        expired_before_ms=7,
    )
    found.apply(expired)
    assert found.paths == [second]
    assert (found.rows[LOG], found.expired[LOG].rows, found.expired_before_ms) == (20, 10, 7)
    # Archived records are not archived again.
    assert found.covered == state().covered
    found.apply(Commit("", 0, removed=(second, "unknown.parquet"), keeps_removed=True))
    assert (found.files, found.rows[LOG]) == ({}, 20)
    for offsets in (Span(10, 12), Span(12, 15)):
        found.apply(Commit("", 0, lost=(RemovedRows(LOG, 2, (offsets,)),)))
    assert found.rows[LOG] == 16
    assert found.lost == {LOG: RemovedRows(LOG, 4, (Span(10, 15),))}
    found.apply(Commit("", 0, reopened=(LOG,)))
    assert (found.rows[LOG], found.lost) == (20, {})


@pytest.mark.rule("archive-commits-are-never-skipped")
@pytest.mark.parametrize(
    "gone",
    [
        Commit(
            "", 0, removed=(f"{HOUR}/0.parquet",), expired=(RemovedRows(LOG, 10, (Span(0, 10),)),)
        ),
        Commit("", 0, removed=(f"{HOUR}/0.parquet",), lost=(RemovedRows(LOG, 10, (Span(0, 10),)),)),
    ],
)
def test_rows_that_a_lost_commit_archived_and_a_later_one_removed_are_not_subtracted_twice(
    gone: Commit,
) -> None:
    """Otherwise the archive would have 20 rows in its files and 10 in its commits for good."""
    intact = state()
    intact.apply(gone)
    found = ArchiveState(number=1)
    found.apply_after_gap(batch(1, Span(10, 30), {3: Span(10, 15), 5: Span(15, 30)}))
    found.apply_after_gap(gone)
    assert found.rows == intact.rows == {LOG: 20}
    assert found.covered == intact.covered
    assert state_from_json(state_to_json(found), "3.json") == found
    # With all commits, it is `apply`.
    same = state()
    same.apply_after_gap(gone)
    assert same == intact


@pytest.mark.rule("archive-damage-is-error-or-gap")
def test_damaged_offsets_are_neither_read_nor_archived_until_a_commit_covers_them() -> None:
    found = state()
    found.apply(
        batch(2, Span(30, 40), {5: Span(30, 40)})._replace(
            damaged=(DamagedOffsets(LOG, (Span(32, 34), Span(36, 40))),)
        )
    )
    assert found.damaged == {LOG: (Span(32, 34), Span(36, 40))}
    assert found.covered[LOG] == (Span(0, 32), Span(34, 36))
    assert found.epochs[LOG][5] == (Span(15, 32), Span(34, 36))
    assert found.read_to(LOG) == 40
    # Rows that were archived before, and whose file is lost.
    found.apply(Commit("", 0, damaged=(DamagedOffsets(LOG, (Span(10, 12),), rows=2),)))
    assert found.rows[LOG] == 38
    assert Archived.within(found, [(LOG, Span(10, 12))]) == []
    assert state_from_json(state_to_json(found), "3.json") == found
    found.apply(batch(3, Span(10, 40), {5: Span(15, 40), 3: Span(10, 15)}))
    assert found.damaged == {}
    assert found.covered[LOG] == (Span(0, 40),)


def test_an_entirely_damaged_log_is_known() -> None:
    found = ArchiveState()
    found.apply(Commit("", 0, damaged=(DamagedOffsets(LOG, (Span(0, 9),)),)))
    assert (found.rows[LOG], found.covered[LOG], found.read_to(LOG)) == (0, (), 9)
    assert state_from_json(state_to_json(found), "1.json") == found


def test_commits_round_trip_as_json() -> None:
    commit = batch(7, Span(0, 10), {3: Span(0, 10)})
    assert commit_from_json(commit_to_json(commit), "7.json") == commit
    changed = Commit(
        "staging/000000000003",
        1,
        removed=("a.parquet",),
        keeps_removed=True,
        expired=(RemovedRows(LOG, 3, (Span(5, 8),)),),
        expired_before_ms=9,
        lost=(RemovedRows(LOG, 2, (Span(0, 1), Span(4, 5))),),
        damaged=(DamagedOffsets(LOG, (Span(1, 2), Span(8, 9)), 1),),
        reopened=(LogId("sea", "id-1", 7),),
    )
    assert commit_from_json(commit_to_json(changed), "8.json") == changed
    added_up = state()
    added_up.apply(changed)
    assert state_from_json(state_to_json(added_up), "3.json") == added_up


def test_commits_of_a_release_without_checksums_are_read() -> None:
    commit = (
        b'{"version":1,"staging":"_archive/staging/000000000001","committed_at_ms":5,"query":"q",'
        b'"batch":0,"replaces":"","added":[["a/1.parquet",10,99]],'
        b'"read":[["sea","id-1",0,0,10,10,1,{"3":[0,10]}]]}'
    )
    read = ReadRange(LOG, Span(0, 10), 10, 1, {3: Span(0, 10)})
    added = AddedFile("a/1.parquet", 10, 99)
    staging = "_archive/staging/000000000001"
    assert commit_from_json(commit, "1.json") == Commit(staging, 5, (added,), (read,), "q", 0)
    old_state = (
        b'{"version":1,"number":1,"files":[["a/1.parquet",10,99]],'
        b'"logs":[["sea","id-1",0,10,1,[[0,10]],{"3":[[0,10]]}]],"batches":{"q":0}}'
    )
    added_up = ArchiveState()
    added_up.apply(commit_from_json(commit, "1.json"))
    assert state_from_json(old_state, "1.json") == added_up


@pytest.mark.parametrize("text", [b"", b"[]", b"7", b'{"version": 3}', b'{"version": 1}'])
def test_a_damaged_commit_is_reported(text: bytes) -> None:
    for read in (commit_from_json, state_from_json):
        with pytest.raises(
            DamagedCommitError, match=r"12.json is not a readable part of an archive"
        ):
            read(text, "12.json")


def test_a_commit_of_a_later_release_is_not_taken_for_damaged() -> None:
    for read in (commit_from_json, state_from_json):
        with pytest.raises(TidelogError, match="continue with the release") as raised:
            read(b'{"version": 4}', "12.json")
        assert not isinstance(raised.value, DamagedCommitError)


@pytest.mark.rule("archive-commits-are-never-skipped")
def test_a_flipped_bit_does_not_yield_another_valid_commit() -> None:
    commit = batch(7, Span(0, 10), {3: Span(0, 10)})
    text = commit_to_json(commit)
    for place in range(len(text)):
        for bit in range(8):
            flipped = bytearray(text)
            flipped[place] ^= 1 << bit
            with pytest.raises(TidelogError):
                commit_from_json(bytes(flipped), "7.json")
