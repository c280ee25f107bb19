"""The source of the site: the pages of the repository at the same paths, with generated text and
drawn diagrams. Links between pages therefore work in both."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidelog_docs.references import fill

ROOT = Path(__file__).parents[2]
CONFIGURATION = ROOT / "docs" / "mkdocs.yml"
_LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def configuration() -> str:
    """Returns mkdocs.yml with each decision record at the end of its navigation."""
    lines = [CONFIGURATION.read_text()]
    for record in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")):
        title = record.read_text().partition("\n")[0].removeprefix("# ")
        lines.append(f"      - {json.dumps(title)}: {record.relative_to(ROOT)}\n")
    return "".join(lines)


def navigation(entries: list[Any]) -> Iterator[str]:
    """Yields the pages of a `nav` of mkdocs.yml, in order."""
    for entry in entries:
        for target in entry.values() if isinstance(entry, dict) else (entry,):
            if isinstance(target, str):
                yield target
            else:
                yield from navigation(target)


def write(directory: Path) -> int:
    """Writes the source from scratch and returns the number of pages."""
    shutil.rmtree(directory, ignore_errors=True)
    found = pages()
    for page in found:
        target = directory / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(with_diagrams(fill(page.read_text()), target))
    assets = (ROOT / "docs" / "assets").iterdir()
    for file in (*assets, *(file for page in found for file in linked_files(page))):
        target = directory / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return len(found)


def linked_files(page: Path) -> Iterator[Path]:
    """Yields the files other than pages that a page links to, such as pictures."""
    for link in _LINK.findall(page.read_text()):
        file = (page.parent / link).resolve()
        if file.suffix != ".md" and file.is_file():
            yield file


def with_diagrams(text: str, target: Path) -> str:
    """Returns the text with its Mermaid diagrams as pictures, which are written beside the page.

    Browsers would need Mermaid's script, which is larger than the rest of the site."""
    numbers = iter(range(1, 100))

    def draw(diagram: re.Match[str]) -> str:
        import mmdr  # only `make docs` has it

        picture = target.with_name(f"{target.stem}-{next(numbers)}.svg")
        picture.write_text(mmdr.render(diagram[1]).svg())
        return f"![Sequence diagram]({picture.name}){{ .diagram }}"

    return _DIAGRAM.sub(draw, text)
