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
    """Returns the form ("full", "quick", or "custom" if a setting differs) and the settings.

    Settings are numbers above 0; otherwise exits with status 2 and an error message.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--quick", action="store_true", help="once, with little data")
    for field in fields(full):
        name = f"--{field.name.replace('_', '-')}"
        default, short = getattr(full, field.name), getattr(quick, field.name)
        help_text = f"default: {default:g}, quick: {short:g}"
        parser.add_argument(name, type=type(default), help=help_text)
    arguments = vars(parser.parse_args(argv))
    form = "quick" if arguments.pop("quick") else "full"
    chosen = {name: value for name, value in arguments.items() if value is not None}
    for name, value in chosen.items():
        if value <= 0:
            parser.error(f"--{name.replace('_', '-')} is {value}; it must be above 0")
    defaults = quick if form == "quick" else full
    settings = replace(defaults, **chosen)
    return (form if settings == defaults else CUSTOM), settings
