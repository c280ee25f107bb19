"""The options of a bench with a full and a quick form: one for each of its settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CUSTOM = "custom"

S = TypeVar("S", bound="DataclassInstance")


def parse(
    prog: str, description: str | None, full: S, quick: S, argv: Sequence[str]
) -> tuple[str, S]:
    """Form ("full" or "quick"; "custom" where a setting is different) and settings, which are
    numbers above 0.

    Exits with status 2 and an error message if they are not."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--quick", action="store_true", help="once, with little data")
    for field in fields(full):
        name = f"--{field.name.replace('_', '-')}"
        usual, least = getattr(full, field.name), getattr(quick, field.name)
        parser.add_argument(name, type=type(usual), help=f"default: {usual:g}, quick: {least:g}")
    arguments = vars(parser.parse_args(argv))
    form = "quick" if arguments.pop("quick") else "full"
    chosen = {name: value for name, value in arguments.items() if value is not None}
    for name, value in chosen.items():
        if value <= 0:
            parser.error(f"--{name.replace('_', '-')} is {value}; it is above 0")
    usual_of_form = quick if form == "quick" else full
    settings = replace(usual_of_form, **chosen)
    return (form if settings == usual_of_form else CUSTOM), settings
