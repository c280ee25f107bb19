"""A watch delivers every revision once, complete and in order."""

from __future__ import annotations

from tidelog_runtime.metadata.store import Changed, KeyValue, Snapshot
from tidelog_runtime.metadata.watch_view import (
    FIRST_SILENCE_MS,
    MAX_SILENCE_MS,
    SilenceBound,
    WatchView,
)


def item(key: str, revision: int, created: int | None = None) -> KeyValue:
    return KeyValue(key, b"", created or revision, revision)


def written(key: str, revision: int) -> Changed:
    return Changed(key, item(key, revision), revision)


def snapshot(revision: int, *items: KeyValue) -> Snapshot:
    return Snapshot("/", revision, {one.key: one for one in items})


def test_revisions_in_the_snapshot_are_skipped() -> None:
    view = WatchView(snapshot(5))
    assert view.take([written("/a", 4), written("/a", 5), written("/a", 6)]) == [
        (written("/a", 6),)
    ]


def test_delivered_revisions_are_not_delivered_again() -> None:
    view = WatchView(snapshot(5))
    view.take([written("/a", 6), written("/a", 7)])
    assert view.take([written("/a", 6), written("/a", 7), written("/a", 8)]) == [
        (written("/a", 8),)
    ]


def test_a_possibly_incomplete_revision_waits_for_its_rest() -> None:
    view = WatchView(snapshot(5))
    groups = view.take([written("/a", 6), written("/a", 7)], more=True)
    assert groups == [(written("/a", 6),)]
    assert view.revision == 6
    groups = view.take([written("/b", 7)], more=True)
    assert groups == []
    groups = view.take([written("/c", 7), written("/a", 8)])
    assert groups == [(written("/a", 7), written("/b", 7), written("/c", 7)), (written("/a", 8),)]


def test_an_incomplete_revision_is_delivered_again_after_its_stream_is_lost() -> None:
    view = WatchView(snapshot(5))
    view.take([written("/a", 6)], more=True)
    view.lose_stream()
    assert view.take([written("/a", 6), written("/b", 6)]) == [(written("/a", 6), written("/b", 6))]


def test_progress_never_decreases() -> None:
    view = WatchView(snapshot(5))
    view.advance(9)
    view.advance(7)
    assert view.revision == 9


def test_a_snapshot_is_compared_with_the_delivered_state() -> None:
    view = WatchView(snapshot(5, item("/same", 1), item("/gone", 2), item("/again", 3)))
    view.take([written("/new", 6), Changed("/gone", None, 7)])
    later = snapshot(
        20, item("/same", 1), item("/new", 6), item("/again", 18), item("/changed", 19, created=9)
    )
    assert view.catch_up(later) == (
        Changed("/again", item("/again", 18), 18),
        Changed("/changed", item("/changed", 19, created=9), 19),
    )
    assert view.revision == 20


def test_a_deletion_gets_the_revision_of_the_later_snapshot() -> None:
    view = WatchView(snapshot(5, item("/gone", 2)))
    assert view.catch_up(snapshot(20)) == (Changed("/gone", None, 20),)
    assert view.catch_up(snapshot(21)) == ()


def test_a_harmless_silence_doubles_the_tolerated_silence_up_to_a_limit() -> None:
    silence = SilenceBound()
    borne = []
    for _ in range(9):
        borne.append(silence.ms)
        silence.read_again(has_differences=False)
    assert borne[:3] == [FIRST_SILENCE_MS, 2 * FIRST_SILENCE_MS, 4 * FIRST_SILENCE_MS]
    assert borne[-2:] == [MAX_SILENCE_MS, MAX_SILENCE_MS]


def test_a_silence_with_missed_changes_resets_the_tolerated_silence() -> None:
    silence = SilenceBound()
    silence.read_again(has_differences=False)
    silence.read_again(has_differences=True)
    assert silence.ms == FIRST_SILENCE_MS
