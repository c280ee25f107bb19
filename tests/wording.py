"""`python -m wording`: finds words of a private dialect in prose, and prints each place.

Prose is docstrings, comments, the comments of proto files, and documents. Names in backticks and
code blocks of documents are not prose. GLOSSARY.md has the words to use instead.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from documented import ROOT, pages

PYTHON = (
    "bench",
    "deploy",
    "docs",
    "libs",
    "services",
    "tests/model",
    "tests/mutants",
    "tests/simulation",
)

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
_QUOTED = re.compile(r"```.*?```|``.*?``|`[^`]*`|\"[^\"\n]*\"", re.DOTALL)
_INDENTED_CODE = re.compile(r"^(?: {4,}|\t).*$", re.MULTILINE)


class Found(NamedTuple):
    line: int
    word: str

    @property
    def instead(self) -> str:
        return next(v for k, v in INSTEAD.items() if re.fullmatch(k, self.word, re.IGNORECASE))


def banned(text: str, first_line: int = 1) -> Iterator[Found]:
    """The banned words of a text that begins at that line."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    text = _QUOTED.sub(blank, text)
    for match in _BANNED.finditer(text):
        is_refusal = match[0].lower().startswith("refus")
        around = text[max(0, match.start() - 60) : match.end() + 60]
        if not (is_refusal and _CONNECTION.search(around)):
            yield Found(first_line + text.count("\n", 0, match.start()), match[0])


def in_python(source: str) -> Iterator[Found]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield from banned(text, node.lineno)
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


def in_document(text: str) -> Iterator[Found]:
    return banned(_INDENTED_CODE.sub("", text))


def in_proto(text: str) -> Iterator[Found]:
    lines = [line.partition("//")[2] for line in text.splitlines()]
    return banned("\n".join(lines))


def _found_in(path: Path) -> Iterator[Found]:
    search = {".py": in_python, ".md": in_document, ".proto": in_proto}[path.suffix]
    return search(path.read_text())


def _files() -> list[Path]:
    python = [path for folder in PYTHON for path in sorted((ROOT / folder).rglob("*.py"))]
    documents = [*pages(), *sorted(ROOT.glob("*/*/README.md"))]
    proto = sorted((ROOT / "proto").rglob("*.proto"))
    return [path for path in (*python, *documents, *proto) if "_pb2" not in path.name]


def main() -> int:
    found = [(path, word) for path in _files() for word in _found_in(path)]
    for path, word in found:
        sys.stdout.write(
            f"{path.relative_to(ROOT)}:{word.line}: {word.word!r}; write {word.instead}\n"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
