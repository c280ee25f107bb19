from tidelog_pipeline.archive.spans import Span, by_epoch, common, united, without


def test_spans_that_touch_or_overlap_are_one() -> None:
    spans = [Span(20, 30), Span(0, 10), Span(10, 12), Span(25, 27), Span(5, 5)]
    assert united(spans) == (Span(0, 12), Span(20, 30))


def test_what_is_left_of_a_span() -> None:
    assert without(Span(5, 30), [Span(0, 10), Span(20, 22), Span(40, 50)]) == (
        Span(10, 20),
        Span(22, 30),
    )
    assert without(Span(0, 10), [Span(0, 10)]) == ()


def test_what_two_have_in_common() -> None:
    assert common(Span(5, 15), [Span(0, 7), Span(9, 11), Span(14, 99), Span(20, 30)]) == (
        Span(5, 7),
        Span(9, 11),
        Span(14, 15),
    )


def test_offsets_without_a_record_go_to_the_epoch_before_them() -> None:
    """7 and 8 of what was read have none, nor has 20."""
    assert by_epoch(Span(7, 21), [(2, 9), (4, 15)]) == {2: Span(7, 15), 4: Span(15, 21)}
    assert by_epoch(Span(7, 21), []) == {}
