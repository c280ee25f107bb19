from tidelog_pipeline.archive.core.spans import (
    LogId,
    Span,
    by_epoch,
    common,
    slices,
    united,
    without,
)


def test_touching_or_overlapping_spans_are_merged() -> None:
    spans = [Span(20, 30), Span(0, 10), Span(10, 12), Span(25, 27), Span(5, 5)]
    assert united(spans) == (Span(0, 12), Span(20, 30))


def test_slices_are_of_all_spans_that_have_some_left_and_bounded() -> None:
    first, second = LogId("sea", "id", 0), LogId("sea", "id", 1)
    spans = {first: Span(5, 25), second: Span(0, 4), LogId("empty", "id", 0): Span(3, 3)}
    assert list(slices(spans, 10)) == [
        {first: Span(5, 10), second: Span(0, 4)},
        {first: Span(10, 20)},
        {first: Span(20, 25)},
    ]
    assert len(list(slices({first: Span(0, 3), second: Span(0, 3)}, 1))) == 3


def test_the_remainder_of_a_span() -> None:
    assert without(Span(5, 30), [Span(0, 10), Span(20, 22), Span(40, 50)]) == (
        Span(10, 20),
        Span(22, 30),
    )
    assert without(Span(0, 10), [Span(0, 10)]) == ()


def test_the_intersection_of_two_spans() -> None:
    assert common(Span(5, 15), [Span(0, 7), Span(9, 11), Span(14, 99), Span(20, 30)]) == (
        Span(5, 7),
        Span(9, 11),
        Span(14, 15),
    )


def test_offsets_without_a_record_belong_to_the_epoch_before_them() -> None:
    """Offsets 7 and 8 of the read range have no record, nor has 20."""
    assert by_epoch(Span(7, 21), [(2, 9), (4, 15)]) == {2: Span(7, 15), 4: Span(15, 21)}
    assert by_epoch(Span(7, 21), []) == {}
