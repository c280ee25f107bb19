"""A rule that is switched off can be called like the production code that it replaces."""

from __future__ import annotations

import inspect
from inspect import Parameter

import pytest

from model import rules
from model.rules import Rule

RULES = {name: rule for name, rule in vars(rules).items() if isinstance(rule, Rule)}


@pytest.mark.parametrize("name", RULES)
def test_a_broken_version_takes_every_argument_of_the_original(name: str) -> None:
    rule = RULES[name]
    original = inspect.signature(getattr(rule.owner, rule.attribute)).parameters
    named = {p.name: None for p in original.values() if p.kind is Parameter.KEYWORD_ONLY}
    inspect.signature(rule.without).bind(*[None] * (len(original) - len(named)), **named)
