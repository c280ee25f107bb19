"""Planted bugs are located by symbol and syntax, independent of comments and layout."""

from __future__ import annotations

import pytest

from mutants.rewrite import Change, PatchError, normalized, rewritten

SOURCE = """
class Log:
    # A comment.
    def append(self, n):
        'Text.'
        if n > 0 and self.open:  # why
            self.n += n
            return True
        return False

    def close(self, n):
        return False
"""


def planted(old: str, new: str, symbol: str = "Log.append") -> str:
    return rewritten(SOURCE, [Change("x.py", symbol, old, new)])


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        ("self.n += n", "self.n = n", "self.n += n", "self.n = n"),
        ("self.n += n\nreturn True", "return True", "self.n += n\n            ", ""),
        ("if n > 0 and self.open:\n    ...", "if n:\n    ...", "if n > 0 and self.open", "if n"),
        ("if (n > 0\n    and ...):\n    ...", "if n:\n    ...", "if n > 0 and self.open", "if n"),
    ],
)
def test_statements_are_replaced(old: str, new: str, before: str, after: str) -> None:
    assert planted(old, new) == normalized(SOURCE).replace(before, after)


def test_the_head_of_a_function_is_replaced() -> None:
    changed = planted("def close(self, n):\n    ...", "def close(self, n=1):\n    ...", "Log")
    assert changed == normalized(SOURCE).replace("close(self, n)", "close(self, n=1)")


def test_a_body_may_be_unwrapped() -> None:
    changed = planted("if n > 0 and self.open:\n    ...", "...")
    assert "        self.n += n\n        return True\n        return False\n" in changed


@pytest.mark.parametrize(
    ("old", "symbol", "said"),
    [
        ("self.n += 1", "Log.append", "0 times, not once"),
        ("return False", "Log", "2 times, not once"),
        ("return False", "Log.read", "Log.read in x.py is there 0 times"),
        ("", "Log.append", "at least one statement"),
    ],
)
def test_an_ambiguous_change_is_rejected(old: str, symbol: str, said: str) -> None:
    with pytest.raises(PatchError, match=said):
        planted(old, "pass", symbol)
