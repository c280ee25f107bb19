"""Rules, the tests that prove them, and citations of rules name each other.

Every rule of `docs/internals/rules.toml` has a test and modules that exist; every mark of a test
and every citation in the code names a rule, by its id, or a heading that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import rules
from documented import ROOT, anchor
from rules import Catalogue, Group, Mark, Rule

INTERNALS = ROOT / "docs" / "internals"
# The pages that have the rules.
PAGES = {
    f"docs/internals/{name}.md": (INTERNALS / f"{name}.md").read_text()
    for name in ("protocol", "producers", "log-format", "interleavings", "gaps")
}
PROTOCOL = "\n".join(PAGES.values())
INTERLEAVINGS = PAGES["docs/internals/interleavings.md"]
KNOWN = rules.catalogue()
# One rule, or several with commas and "and" between them.
CITED = re.compile(r"\b[Rr]ule:? (`[\w.-]+`)|\b[Rr]ules:? ((?:`[\w.-]+`(?:, | and )?)+)")
RIGHT = Rule(
    id="hw-never-falls", title="it never falls", modules=["core/partition/isr.py"], page="gaps.md"
)


def numbers(pattern: str, text: str) -> list[int]:
    return [int(number) for number in re.findall(pattern, text, re.MULTILINE)]


def sources() -> Iterator[tuple[Path, str]]:
    for folder in ("libs", "services", "tests", "proto"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".proto", ".md", ".txt") and "_pb2" not in path.name:
                yield path.relative_to(ROOT), path.read_text()


def section(page: str) -> str:
    """The text of a page below `docs/internals`, or of the section that the anchor behind `#`
    names, with its subsections; empty if the page has no such heading."""
    name, _, fragment = page.partition("#")
    text = (INTERNALS / name).read_text()
    if not fragment:
        return text
    for heading in re.finditer(r"^(#+) (.+)$", text, re.MULTILINE):
        if anchor(heading[2]) == fragment:
            below = re.compile(rf"^#{{1,{len(heading[1])}}} ", re.MULTILINE)
            end = below.search(text, heading.end())
            return text[heading.end() : end.start() if end else None]
    return ""


def is_explained(rule: Rule) -> bool:
    """Whether the section to which the rule points names the rule."""
    return f"`{rule.id}`" in section(rule.page)


def missing_numbers(known: Catalogue) -> list[str]:
    """The labels of numbered rules on the pages of `docs/internals` that no rule has."""
    interleavings = numbers(r"^## (\d+)\. ", INTERLEAVINGS)
    labels = [f"interleaving {number}" for number in interleavings]
    for prefix in "RG":
        labels += [f"{prefix}{n}" for n in numbers(rf"\b{prefix}(\d+)[.*]* ", PROTOCOL)]
    given = [rule.label for rule in known.rules]
    return [label for label in labels if given.count(label) != 1]


def test_rules_tests_and_modules_name_each_other() -> None:
    assert rules.faults(KNOWN, rules.all_marks()) == []


def test_the_page_is_what_rules_and_marks_generate() -> None:
    assert rules.page(KNOWN, rules.all_marks()) == rules.PAGE.read_text(), rules.OUT_OF_DATE


def test_every_numbered_rule_is_listed() -> None:
    assert numbers(r"^## (\d+)\. ", INTERLEAVINGS) == list(range(1, 20))
    labels = {rule.label for rule in KNOWN.rules}
    assert {"R1", "R4", "G1", "G21", "interleaving 1", "interleaving 19"} <= labels
    assert missing_numbers(KNOWN) == []


def test_an_interleaving_is_the_rule_of_its_own_section() -> None:
    numbered = [rule for rule in KNOWN.rules if rule.label.startswith("interleaving ")]
    for rule in numbered:
        number = rule.label.removeprefix("interleaving ")
        assert rule.page.startswith(f"interleavings.md#{number}-"), rule.id


@pytest.mark.parametrize("rule", [r for r in KNOWN.rules if r.page], ids=lambda rule: rule.id)
def test_the_section_that_explains_a_rule_names_it(rule: Rule) -> None:
    assert is_explained(rule)


def test_no_page_names_a_rule_that_does_not_exist() -> None:
    wrong = {page.name: unresolved(page.read_text()) for page in INTERNALS.glob("*.md")}
    assert {page: found for page, found in wrong.items() if found} == {}


def flattened(text: str) -> str:
    """The text in one line: a citation may be broken over lines of a comment, or of a planted
    bug."""
    return re.sub(r"\s+(?:(?:#|//|\+|-)\s+)?", " ", text)


def by_number(text: str) -> list[str]:
    """Citations of rules by the number of a heading, which may change. Sections of other texts,
    such as an RFC, have their number behind the title."""
    flat = flattened(text)
    for_others = r"(?<!RFC \d{4}, )(?<!Computer Programming, )"
    return re.findall(rf"\b[Ii]nterleavings? \d+|{for_others}\b[Ss]ections? \d+", flat)


def unresolved(text: str) -> list[str]:
    """Citations in a source that no page of `docs` resolves."""
    flat = flattened(text)
    cited = [rule for ids in CITED.findall(flat) for rule in re.findall(r"`([^`]+)`", "".join(ids))]
    found = [f"rule {rule}" for rule in cited if rule not in KNOWN.ids]
    for title, page in re.findall(r'"([^"]+)" in (docs/internals/[\w-]+\.md)', flat):
        heading = rf"^##+ (?:\d+\. )?{re.escape(title)}$"
        if not re.search(heading, PAGES.get(page, ""), re.MULTILINE):
            found.append(f'"{title}" in {page}')
    pages = re.findall(r"docs/\w+/[\w-]+\.md", flat)
    found += [page for page in pages if not (ROOT / page).is_file()]
    found += [
        f"docs/adr/{number}"
        for number in re.findall(r"docs/adr/(\d{4})", flat)
        if not list((ROOT / "docs" / "adr").glob(f"{number}-*.md"))
    ]
    found += [
        proposal
        for proposal in re.findall(r"\b(?:KIP|KAFKA)-\d+", flat)
        if not re.search(rf"\b{proposal}\b", PROTOCOL)
    ]
    return found


def test_every_rule_that_the_code_cites_is_in_the_internals() -> None:
    this = Path(__file__).relative_to(ROOT)
    assert {p: u for p, text in sources() if p != this and (u := unresolved(text))} == {}


def test_a_citation_without_its_rule_is_found() -> None:
    right = """
    ("Metadata" in
    # docs/internals/protocol.md; "ISR" in docs/internals/protocol.md; "Damaged
    batches" in docs/internals/log-format.md; docs/adr/0001; KIP-101; rule
    # `maximal-isr-bounds-hw`; rules `retry-is-written-once`, `acks-all-needs-min-isr` and
    # `decisions-ordered-by-revision`)
    """
    assert unresolved(right) == []
    wrong = (
        '"Votes" in docs/internals/protocol.md',
        "docs/adr/9999",
        "KIP-9999",
        "rule `interleaving-7`",
        "rule\n# `no-such-rule`",
        "Rule: `no-such-rule`",
        "rules `retry-is-written-once`, `acks-all-needs-min-isr` and `no-such-rule`",
    )
    for citation in wrong:
        assert unresolved(f"({citation})"), citation


def test_no_source_cites_a_rule_by_a_number() -> None:
    this = Path(__file__).relative_to(ROOT)
    assert {p: n for p, text in sources() if p != this and (n := by_number(text))} == {}


@pytest.mark.parametrize(
    "citation",
    [
        "interleaving 7",
        "Interleavings 2 and 4",
        "interleaving\n    # 7 of docs/internals/interleavings.md",
        "section 3 of docs/internals/protocol.md",
        "Section\n// 6 of docs/internals/log-format.md",
        "section 4",
    ],
)
def test_a_citation_by_number_is_found(citation: str) -> None:
    assert by_number(f"({citation})")
    assert by_number("rule `retry-is-written-once`; RFC 9110, section 13.1; each section") == []


def test_no_source_cites_a_page_that_is_not_here() -> None:
    """Rules are cited by id, headings as "ISR" in docs/internals/protocol.md, or by proposal; none
    of them is in the overview."""
    elsewhere = re.compile(
        r"known[-]gaps|docs[/]protocol|[A]RCHITECTURE\.md\)|[A]RCHITECTURE\.md,\s+section"
    )
    assert [str(path) for path, text in sources() if elsewhere.search(text)] == []


def test_a_wrong_rule_or_mark_is_found() -> None:
    def faults_of(*given: Rule, marked: str = "hw-never-falls") -> list[str]:
        return rules.faults(Catalogue("", [Group("", given)]), [Mark(marked, "test_a.py::b")])

    assert faults_of(RIGHT) == []
    assert faults_of(RIGHT, marked="hw-falls") == [
        'hw-never-falls: no test has @pytest.mark.rule("hw-never-falls")',
        "test_a.py::b: marks hw-falls, which rules.toml does not have",
    ]
    assert faults_of(RIGHT, RIGHT) == ["hw-never-falls: 2 rules have this id"]
    for modules in (["core/partition/vote.py"], ["core/partition/isr.py", "__main__.py"], []):
        assert len(faults_of(replace(RIGHT, modules=modules))) == 1, modules
    for wrong in ("interleaving_7", "interleaving", "a-b-c-d-e-f-g", "G5-rule"):
        assert len(faults_of(replace(RIGHT, id=wrong), marked=wrong)) == 1, wrong
    twice = [Mark(RIGHT.id, "test_a.py::b")] * 2
    assert rules.faults(Catalogue("", [Group("", [RIGHT])]), twice) == [
        "test_a.py::b: marks hw-never-falls twice"
    ]


def test_a_rule_has_a_page_or_its_table_alone() -> None:
    marked = [Mark(RIGHT.id, "test_a.py::b")]
    without = replace(RIGHT, page="")
    for group, wrong in (
        (Group("", [RIGHT]), 0),
        (Group("", [without]), 1),
        (Group("", [without], only_table=True), 0),
        (Group("", [RIGHT], only_table=True), 1),
    ):
        known = Catalogue("", [group])
        assert len(rules.faults(known, marked)) == wrong
        assert (rules.ONLY_TABLE in rules.page(known, marked)) == group.only_table


def test_a_rule_with_a_key_that_is_missing_or_unknown_is_rejected() -> None:
    table = 'introduction = ""\n[[groups]]\ntitle = ""\n[[groups.rules]]\nid = "a-rule"\n'
    assert rules.parse(table + 'title = ""\nmodules = ["a.py"]').ids == {"a-rule"}
    for wrong in ('title = ""', 'title = ""\nmodules = []\npages = ""'):
        with pytest.raises(TypeError):
            rules.parse(table + wrong)


def test_marks_of_functions_methods_and_parameters_are_read() -> None:
    source = """
@pytest.mark.rule("a-rule", "another-rule")
@pytest.mark.rule("third-rule")
async def test_one(): ...

class TestAll:
    @pytest.mark.parametrize("n", [1])
    @pytest.mark.rule("a-rule")
    def test_two(self, n): ...
"""
    assert list(rules.marks("unit/test_a.py", source)) == [
        ("a-rule", "unit/test_a.py::one"),
        ("another-rule", "unit/test_a.py::one"),
        ("third-rule", "unit/test_a.py::one"),
        ("a-rule", "unit/test_a.py::two"),
    ]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("test_a.py", '@pytest.mark.rule("a-rule")\ndef helper(): ...'),
        ("test_a.py", '@pytest.mark.rule("a-rule")\nclass TestAll: ...'),
        ("test_a.py", "@pytest.mark.rule(ID)\ndef test_a(): ..."),
        ("test_a.py", '@pytest.mark.rule(*["a-rule"])\ndef test_a(): ...'),
        ("test_a.py", "@pytest.mark.rule()\ndef test_a(): ..."),
        ("test_a.py", "@pytest.mark.rule\ndef test_a(): ..."),
        ("test_a.py", '@pytest.mark.rule("a-rule", 1)\ndef test_a(): ...'),
        ("test_a.py", 'pytestmark = pytest.mark.rule("a-rule")'),
        ("helper.py", '@pytest.mark.rule("a-rule")\ndef test_a(): ...'),
    ],
)
def test_a_mark_that_the_page_would_not_show_is_an_error(file: str, source: str) -> None:
    with pytest.raises(ValueError, match="elsewhere than on a test"):
        list(rules.marks(file, source))


def test_a_page_that_is_out_of_date_is_reported_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rules.main(["--check"]) == 0
    old = tmp_path / "rules-and-tests.md"
    old.write_text(rules.PAGE.read_text().replace("`decisions-ordered-by-revision`", "", 1))
    monkeypatch.setattr(rules, "PAGE", old)
    assert rules.main(["--check"]) == 1
    assert "run `make rules`" in capsys.readouterr().err


def test_a_rule_without_its_number_or_its_section_is_found() -> None:
    lacking = {"R2", "G21", "interleaving 7"}
    others = [rule for rule in KNOWN.rules if rule.label not in lacking]
    assert set(missing_numbers(Catalogue("", [Group("", others)]))) == lacking
    of_seven = next(rule for rule in KNOWN.rules if rule.label == "interleaving 7")
    assert is_explained(of_seven)
    for page in ("interleavings.md#votes", "interleavings.md#6-an-answer", "protocol.md"):
        assert not is_explained(replace(of_seven, page=page)), page
