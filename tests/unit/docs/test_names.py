"""The check of names finds pairs with two meanings and badly worded names in tests."""

from __future__ import annotations

import pytest

from names import ALLOWED, Allowed, ambiguous, badly_worded, overused

PAIR = {
    "libs/tidelog/backup/gaps.py": "class Gap: ...\nclass _Hidden: ...\n",
    "libs/tidelog/history/report.py": "class Gap: ...\nclass _Hidden: ...\n",
}
MODULES = {"services/x/tidelog_x/a/log.py": "", "services/x/tidelog_x/b/log.py": ""}


def test_a_planted_pair_of_classes_is_found() -> None:
    (complaint,) = ambiguous(PAIR, {})
    assert complaint.startswith("Gap of tidelog has several meanings")
    assert complaint.endswith(", ".join(PAIR))


def test_a_planted_pair_of_modules_is_found() -> None:
    (complaint,) = ambiguous(MODULES, {})
    assert complaint.startswith("log.py of tidelog_x has several meanings")


def test_packages_may_share_names() -> None:
    apart = {"libs/tidelog/a.py": "class Gap: ...", "libs/tidelog_runtime/a.py": "class Gap: ..."}
    assert ambiguous(apart, {}) == []


@pytest.mark.parametrize("module", ["__init__", "__main__", "conftest"])
def test_special_modules_may_occur_often(module: str) -> None:
    often = {f"libs/tidelog/{folder}/{module}.py": "" for folder in "abcd"}
    assert ambiguous(often, {}) == overused(often) == []


def test_an_entry_allows_as_many_places_as_it_says() -> None:
    key = ("tidelog", "Gap")
    assert ambiguous(PAIR, {key: Allowed(2, "the same")}) == []
    assert ambiguous(PAIR, {key: Allowed(3, "the same")}) == [
        "Gap of tidelog: only 2 left; correct ALLOWED"
    ]


def test_each_entry_has_a_reason() -> None:
    assert all(entry.reason and entry.places > 1 for entry in ALLOWED.values())


def test_a_fourth_module_of_a_name_is_found_across_packages() -> None:
    paths = {f"services/{service}/tidelog_{service}/log.py": "" for service in "abcd"}
    assert overused(paths) == [f"more than 3 modules have the name log: {', '.join(paths)}"]
    del paths["services/a/tidelog_a/log.py"]
    assert overused(paths) == []


def test_functions_and_parameters_of_tests_are_checked() -> None:
    source = (
        "def test_nobody_is_informed(wanted, told): ...\n"
        "class Fake:\n"
        "    async def mend(self, *asked, is_wanted=True): ...\n"
        "take = lambda refusal: refusal\n"
    )
    assert {(line, text.split("'")[1]) for line, text in badly_worded(source)} == {
        (1, "test_nobody_is_informed"),
        (1, "wanted"),
        (1, "told"),
        (3, "mend"),
        (3, "asked"),
        (4, "refusal"),
    }


def test_a_name_may_say_that_a_connection_is_refused() -> None:
    assert list(badly_worded("def test_a_refused_connection_is_a_crash(): ...")) == []
    assert len(list(badly_worded("def test_a_refused_batch_is_lost(): ..."))) == 1
