"""The wording check finds banned words and misspelled units, and ignores names and code."""

from __future__ import annotations

from pathlib import Path

import pytest

import wording
from documented import ROOT
from wording import (
    Found,
    banned,
    in_configuration,
    in_document,
    in_planted_bug,
    in_proto,
    in_python,
    in_script,
)

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


def test_words_are_found_in_texts_of_programs() -> None:
    source = """
help = f"Whoever asks is {told} of `nobody`."
log.info("told")
raise ValueError("a batch is refused " "by nobody")
"""
    assert sorted(found.word for found in in_python(source)) == ["Whoever", "nobody", "refused"]
    assert list(in_python(source, with_texts=False)) == []


def test_words_are_found_in_configuration_and_other_languages() -> None:
    text = f"# Nobody is told.\nrefused: 5 seconds\n{' ' * 60}// a connection is refused, `told`\n"
    assert sorted(in_configuration(text)) == [
        Found(1, "Nobody"),
        Found(1, "told"),
        Found(2, "5 seconds"),
        Found(2, "refused"),
    ]


def test_files_of_every_kind_are_checked_and_none_of_others() -> None:
    names = {str(path.relative_to(ROOT)) for path in wording._files()}
    assert {
        "Makefile",
        "docker-compose.yml",
        "pyproject.toml",
        "deploy/grafana/dashboards/overview.json",
        "examples/go/cluster.go",
        "examples/java/src/main/java/example/Main.java",
        "examples/typescript/src/main.ts",
        "libs/tidelog/cli/trace.py",
    } <= names
    assert not [name for name in names if "vendor" in name or "node_modules" in name]


def test_words_are_found_in_documents_outside_code() -> None:
    text = 'It tells.\n\n```\nnobody\n```\n\n    anew\n\n"Told", `told`.\nHe was told.\n'
    assert list(in_document(text)) == [Found(1, "tells"), Found(10, "told")]


def test_words_are_found_in_comments_of_proto_files() -> None:
    text = "// Who asks.\nmessage Told {\n  // Nobody\n  int32 told = 1;  // anew\n}\n"
    assert list(in_proto(text)) == [Found(3, "Nobody"), Found(4, "anew")]


def test_words_are_found_above_the_changes_of_planted_bugs() -> None:
    text = "Rule: a client is told\nStory: It ends.\nIn: a.py told\nReplace:\n    told()\n"
    assert list(in_planted_bug(text)) == [Found(1, "told")]


def test_words_are_found_in_comments_and_texts_of_scripts() -> None:
    source = """/** Nobody.
 * `told`: whoever asks. */
const told = { tells: "anew" };
show(`<p>The broker is told.</p>`, "nobody is in sync", "12px 5 KB 3 records");
"""
    assert list(in_script(source)) == [
        Found(1, "Nobody"),
        Found(2, "whoever"),
        Found(4, "told"),
        Found(4, "nobody"),
        Found(4, "5 KB"),
    ]


@pytest.mark.parametrize("word", ["refused", "refuses", "refusal"])
def test_only_a_connection_is_refused(word: str) -> None:
    assert list(banned(f"The connection is {word}.")) == []
    assert list(banned(f"The batch is {word}.")) == [Found(1, word)]


def test_each_word_names_what_to_write() -> None:
    words = "told tells whoever anew mended reigned askers refusal"
    assert all(found.instead for found in banned(words))
    assert len(list(banned(words))) == len(words.split())


@pytest.mark.parametrize(
    "text",
    [
        "It takes 5 s, 10 ms, 20 µs or 10 minutes.",
        "It has 4 kB, 64 KiB, 1.5 MB and 2 GiB: 95 % of it, at 3 MB/s.",
        "The values of `5s` and \"64KB\" are quoted, and so is '2 h 5 min'.",
        "It is the 10th file of s3, and version 2.1b.",
    ],
)
def test_quantities_have_a_space_and_one_spelling(text: str) -> None:
    assert list(banned(text)) == []


@pytest.mark.parametrize(
    ("spelled", "instead"),
    [
        ("5 seconds", "s, as in 5 s"),
        ("2-second", "s, as in 5 s"),
        ("5 milliseconds", "ms, µs or ns, as in 5 ms"),
        ("5 us", "µs, with the micro sign U+00B5"),
        ("64 KB", "kB for 1,000 bytes, KiB for 1,024"),
        ("1.5 mb", "MB for 1,000,000 bytes, MiB for 1,048,576"),
        ("3 gigabytes", "kB, MB, GB, KiB, MiB or GiB"),
        ("5s", "a space before the unit"),
        ("64MiB", "a space before the unit"),
        ("64-KiB", "a space before the unit"),
        ("2 h", "minutes or hours"),
        ("5 percent", "%, as in 5 %"),
        ("10%", "a space before the unit"),
        ("MB/sec", "/s"),
    ],
)
def test_another_spelling_of_a_unit_is_found(spelled: str, instead: str) -> None:
    (found,) = banned(f"It has {spelled} there.")
    assert (found.word, found.instead) == (spelled, instead)


def test_units_are_found_in_texts_of_programs_but_not_in_values() -> None:
    source = """
help = f"Waits for {count} seconds, and reads 50MB."
trigger(f"{count} seconds")
"""
    assert list(in_python(source)) == [Found(2, "0 seconds")]


@pytest.mark.parametrize(("allowed", "status"), [({}, 1), ({"a.py": 1}, 0), ({"a.py": 2}, 1)])
def test_the_allowed_number_of_places_can_only_shrink(
    allowed: dict[str, int], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("# It takes 5s.\n")
    monkeypatch.setattr(wording, "ROOT", tmp_path)
    monkeypatch.setattr(wording, "_files", lambda: [tmp_path / "a.py"])
    monkeypatch.setattr(wording, "ALLOWED", allowed)
    assert wording.main() == status
