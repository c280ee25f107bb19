"""The producer cases that are measured, and the records they send."""

import zlib

from bench.suite.matrix import (
    BY_RECORD,
    CODECS,
    FACTORS,
    PARTITIONS,
    SIZES,
    USUAL,
    diagonal,
    full,
)
from bench.suite.payload import values


def test_the_full_matrix_has_every_combination_once() -> None:
    cases = full()

    assert len(set(cases)) == len(cases)
    assert len(cases) == len(SIZES) * 2 * len(FACTORS) * len(PARTITIONS) * len(CODECS) + 1


def test_the_diagonal_changes_one_setting_of_the_usual_case() -> None:
    first, *others = diagonal()

    assert first == USUAL
    assert len(set(others)) == len(others)
    for case in others:
        assert sum(one != usual for one, usual in zip(case, USUAL, strict=True)) == 1
    assert {case.record_bytes for case in others} | {USUAL.record_bytes} == set(SIZES)
    assert BY_RECORD in others


def test_names_distinguish_cases() -> None:
    assert len({case.name for case in full()}) == len(full())
    assert USUAL.name == "1 KiB, acks=all, factor 3, 12 partitions, none"


def test_a_record_larger_than_a_batch_is_sent_alone() -> None:
    assert USUAL._replace(record_bytes=100 << 10).records_per_batch == 1
    assert USUAL.records_per_batch == 64


def test_values_have_their_size_and_compress_as_texts_do() -> None:
    made = values(1000, 100)

    assert {len(value) for value in made} == {1000}
    assert len(made) == 100
    assert made == values(1000, 100)
    whole = b"".join(made)
    assert 1.5 < len(whole) / len(zlib.compress(whole)) < 5
