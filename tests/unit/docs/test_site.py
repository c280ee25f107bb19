"""The documentation site is complete, without building it: each page is in the navigation once, and
each marker has a generator."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from documented import ROOT, pages
from tidelog_docs.__main__ import loaded_from_network
from tidelog_docs.references import GENERATORS, MARKER, fill
from tidelog_docs.site_source import configuration, linked_files, navigation


class _Loader(yaml.SafeLoader):
    """Reads the settings of mkdocs.yml; Python objects in it are of no interest here."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)

LINKED_TEXT = re.compile(r"\]\(([^():#]+\.md)[^()]*\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

SETTINGS: dict[str, Any] = yaml.load(configuration(), _Loader)


def test_every_page_is_in_the_navigation_once() -> None:
    in_navigation = Counter(navigation(SETTINGS["nav"]))
    assert in_navigation == Counter(str(page.relative_to(ROOT)) for page in pages())


def test_every_generated_reference_is_in_one_page() -> None:
    markers = Counter(name for page in pages() for name in MARKER.findall(page.read_text()))
    assert markers == Counter(list(GENERATORS))


def test_a_marker_without_a_generator_fails() -> None:
    with pytest.raises(KeyError, match="settings tides"):
        fill("# Tides\n\n<!-- generated: settings tides -->\n")


def test_pictures_and_other_linked_files_are_part_of_the_site() -> None:
    page = ROOT / "docs" / "integrations" / "rest-and-console.md"
    assert ROOT / "docs" / "screenshots" / "overview.png" in set(linked_files(page))


def test_pages_link_to_no_text_that_the_site_lacks() -> None:
    """The READMEs of tests and services are no pages: their paths are named without a link."""
    names = set(pages())
    links = (
        (page, page.parent / found) for page in names for found in LINKED_TEXT.findall(text(page))
    )
    assert [f"{page.name}: {to}" for page, to in links if to.resolve() not in names] == []


def text(page: Path) -> str:
    return CODE_BLOCK.sub("", page.read_text())


def test_the_theme_loads_no_fonts_and_no_scripts_of_others() -> None:
    assert SETTINGS["theme"]["font"] is False
    for script in SETTINGS["extra"]["polyfills"]:
        assert (ROOT / script).is_file()


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://unpkg.com/shim"></script>',
        '<link rel="stylesheet" href="https://fonts.example/a.css">',
        "@import url(//example.com/a.css)",
        '<img alt="" src=//example.com/a.png>',
    ],
)
def test_what_a_page_would_load_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(text)
    assert len(list(loaded_from_network(tmp_path))) == 1


def test_a_link_that_a_reader_follows_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="https://etcd.io/">etcd</a><img src="a.png">')
    assert list(loaded_from_network(tmp_path)) == []
