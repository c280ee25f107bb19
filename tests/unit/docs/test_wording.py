"""The wording check finds banned words and ignores names and code."""

from __future__ import annotations

import pytest

from wording import Found, banned, in_document, in_proto, in_python

SOURCE = '''"""Whoever asks is told."""


def told() -> str:
    """Returns `told`.

    Nobody else does."""
    # The connection is
    # refused.
    return "told anew"  # Mended once more.
'''


def test_words_are_found_in_docstrings_and_comments() -> None:
    assert list(in_python(SOURCE)) == [
        Found(1, "Whoever"),
        Found(1, "told"),
        Found(7, "Nobody"),
        Found(10, "Mended"),
        Found(10, "once more"),
    ]


def test_words_are_found_in_documents_outside_code() -> None:
    text = 'It tells.\n\n```\nnobody\n```\n\n    anew\n\n"Told", `told`.\nHe was told.\n'
    assert list(in_document(text)) == [Found(1, "tells"), Found(10, "told")]


def test_words_are_found_in_comments_of_proto_files() -> None:
    text = "// Who asks.\nmessage Told {\n  // Nobody\n  int32 told = 1;  // anew\n}\n"
    assert list(in_proto(text)) == [Found(3, "Nobody"), Found(4, "anew")]


@pytest.mark.parametrize("word", ["refused", "refuses", "refusal"])
def test_only_a_connection_is_refused(word: str) -> None:
    assert list(banned(f"The connection is {word}.")) == []
    assert list(banned(f"The batch is {word}.")) == [Found(1, word)]


def test_each_word_names_what_to_write() -> None:
    words = "told tells whoever anew mended reigned askers refusal"
    assert all(found.instead for found in banned(words))
    assert len(list(banned(words))) == len(words.split())
