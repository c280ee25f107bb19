"""`python -m wording`: prints each place with a word of a private dialect or a misspelled unit.

Prose is docstrings, comments, the comments of proto files, documents, what planted bugs have above
their changes, and comments and texts of the console. Names in backticks and code blocks of
documents are not prose. GLOSSARY.md has the words to use instead. Texts of programs, such as help,
errors and log lines, have the same words, and units spelled as everywhere. So do configuration
files, the Makefile and the examples in other languages, names in them included.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from documented import ROOT, pages
from unit_spelling import ALLOWED, EVERYWHERE, IN_PROSE, pattern

PYTHON = ("bench", "deploy", "docs", "libs", "services", "tests")
# Configuration files, and code in other languages.
CONFIGURATION = (".yml", ".yaml", ".toml", ".json", ".go", ".java", ".ts", ".tpl", ".sh", "")
CONFIGURED = ("deploy", "docs", "examples", "services")
# Tests of this check and of that of names, whose texts are samples.
_WITH_SAMPLES = ("test_wording.py", "test_names.py")
# Files of tools and of others, and what is built.
_NOT_OWN = re.compile(r"lock|compose-spec|node_modules|/vendor/|/target/|/dist/|/gen/|/\.")
# The console, without the scripts of others.
SCRIPTS = "services/admin-api/tidelog_admin_api/console/app"

# Each word, with what to write instead.
INSTEAD = {
    r"tells?|told|telling": "report, send, log, publish, return or inform",
    r"whoever|whomever|nobody|anybody": "the caller, the client, no replica, any broker",
    r"anew|once more": "again, or from scratch",
    r"mend(?:s|ed|ing)?": "repair",
    r"reign(?:s|ed|ing)?": "controller term",
    r"askers?": "caller",
    r"refus(?:e|es|ed|ing|als?)": "reject, rejection",
}
# The operating system refuses a connection; everything else is rejected.
_CONNECTION = re.compile(r"connect|address|ECONN|dial|REFUSED")
_BANNED = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)
_UNITS = pattern(EVERYWHERE | IN_PROSE)
_UNITS_OF_TEXTS = pattern(EVERYWHERE)
# A shorter text is a value of some interface, such as "5 seconds" for Spark.
_LEAST_WORDS = 3
_QUOTED = re.compile(r"```.*?```|``.*?``|`[^`]*`|\"[^\"\n]*\"", re.DOTALL)
_BACKTICKS = re.compile(r"`[^`\n]*`")
# Texts in a line of a script: in quotes, or between tags.
_SCRIPT_TEXT = re.compile(r'"([^"]+)"|>([^<>{}`]+)(?:<|$)')
_SCRIPT_COMMENTS = ("//", "/*", "*")
_INDENTED_CODE = re.compile(r"^(?: {4,}|\t).*$", re.MULTILINE)


class Found(NamedTuple):
    line: int
    word: str

    @property
    def instead(self) -> str:
        for word, instead in INSTEAD.items():
            if re.fullmatch(word, self.word, re.IGNORECASE):
                return instead
        units = EVERYWHERE | IN_PROSE
        return next(instead for unit, instead in units.items() if re.fullmatch(unit, self.word))


def banned(text: str, first_line: int = 1) -> Iterator[Found]:
    """The banned words and the misspelled units of a text that begins at that line."""
    text = _without_quotes(text)
    yield from words(text, first_line)
    yield from _matches(_UNITS, text, first_line)


def words(text: str, first_line: int = 1) -> Iterator[Found]:
    """The banned words of a text without quotes."""
    for match in _BANNED.finditer(text):
        is_refusal = match[0].lower().startswith("refus")
        around = text[max(0, match.start() - 60) : match.end() + 60]
        if not (is_refusal and _CONNECTION.search(around)):
            yield Found(first_line + text.count("\n", 0, match.start()), match[0])


def _in_text(text: str, first_line: int) -> Iterator[Found]:
    """Checks a text of a program, which may also have output and values."""
    yield from words(text, first_line)
    yield from _matches(_UNITS_OF_TEXTS, text, first_line)


def _without_quotes(text: str) -> str:
    return _QUOTED.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _matches(searched: re.Pattern[str], text: str, first_line: int) -> Iterator[Found]:
    for match in searched.finditer(text):
        yield Found(first_line + text.count("\n", 0, match.start()), match[0])


def in_python(source: str, *, with_texts: bool = True) -> Iterator[Found]:
    tree = ast.parse(source)
    docstrings = {
        id(node.value): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for constant in docstrings.values():
        if isinstance(constant.value, str):
            yield from banned(constant.value, constant.lineno)
    for line, text in _texts(tree, docstrings):
        if with_texts and len(text.split()) >= _LEAST_WORDS:
            yield from _in_text(_without_quotes(text), line)
    comments: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string
    for line, comment in comments.items():
        # The neighbouring lines may have the rest of the sentence.
        before, after = comments.get(line - 1, ""), comments.get(line + 1, "")
        yield from (
            Found(line, found.word)
            for found in banned(f"{before} \n{comment}\n {after}")
            if found.line == 2
        )


def _texts(tree: ast.Module, docstrings: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yields the other strings with their lines; each value in an f-string stands as 0."""
    seen = set(docstrings)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            seen.update(map(id, node.values))
            parts = (one.value if isinstance(one, ast.Constant) else "0" for one in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif id(node) not in seen and isinstance(node, ast.Constant):
            yield node.lineno, node.value if isinstance(node.value, str) else ""


def in_document(text: str) -> Iterator[Found]:
    return banned(_INDENTED_CODE.sub("", text))


def in_proto(text: str) -> Iterator[Found]:
    lines = [line.partition("//")[2] for line in text.splitlines()]
    return banned("\n".join(lines))


def in_planted_bug(text: str) -> Iterator[Found]:
    """Checks the lines above the first change."""
    return banned(text.partition("\nIn: ")[0])


def in_script(source: str) -> Iterator[Found]:
    """Checks a script of the console."""
    for number, line in enumerate(source.splitlines(), 1):
        if line.strip().startswith(_SCRIPT_COMMENTS):
            yield from banned(line, number)
            continue
        for quoted, between in _SCRIPT_TEXT.findall(line):
            text = quoted or between
            if len(text.split()) >= _LEAST_WORDS:
                yield from _in_text(text, number)


def in_configuration(text: str) -> Iterator[Found]:
    """Checks comments, names and values."""
    return _in_text(_BACKTICKS.sub(_blank, text), 1)


SEARCHES: dict[str, Callable[[str], Iterator[Found]]] = {
    ".py": in_python,
    ".md": in_document,
    ".proto": in_proto,
    ".txt": in_planted_bug,
    ".js": in_script,
    **dict.fromkeys(CONFIGURATION, in_configuration),
}


def _found_in(path: Path) -> Iterator[Found]:
    if path.name in _WITH_SAMPLES:
        return in_python(path.read_text(), with_texts=False)
    return SEARCHES[path.suffix](path.read_text())


def _files() -> list[Path]:
    python = [path for folder in PYTHON for path in sorted((ROOT / folder).rglob("*.py"))]
    documents = [*pages(), *sorted(ROOT.glob("*/*/README.md"))]
    proto = sorted((ROOT / "proto").rglob("*.proto"))
    planted_bugs = sorted((ROOT / "tests" / "mutants" / "bugs").glob("*.txt"))
    scripts = sorted((ROOT / SCRIPTS).rglob("*.js"))
    files = (*python, *documents, *proto, *planted_bugs, *scripts, *_configuration())
    return [path for path in files if "_pb2" not in path.name]


def _configuration() -> list[Path]:
    below = [path for folder in CONFIGURED for path in sorted((ROOT / folder).rglob("*"))]
    named = [ROOT / "Makefile", *sorted(ROOT.glob("*.toml")), *sorted(ROOT.glob("*.yml"))]
    return [
        path
        for path in (*named, *below)
        if path.suffix in CONFIGURATION
        and path.is_file()
        and not _NOT_OWN.search(path.relative_to(ROOT).as_posix())
    ]


def main() -> int:
    by_file = {str(path.relative_to(ROOT)): list(_found_in(path)) for path in _files()}
    wrong: list[str] = []
    for name in by_file | ALLOWED:
        found, allowed = by_file.get(name, []), ALLOWED.get(name, 0)
        if len(found) > allowed:
            wrong += (f"{name}:{one.line}: {one.word!r}; write {one.instead}" for one in found)
        elif len(found) < allowed:
            wrong.append(f"{name}: set its number in ALLOWED of unit_spelling.py to {len(found)}")
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
