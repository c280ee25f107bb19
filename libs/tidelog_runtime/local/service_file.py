"""Writes the configuration file of a local service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

Setting = str | int | float | bool | list[str]


def write(path: Path, settings: Mapping[str, Setting]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = {_toml(value)}\n" for name, value in settings.items()]
    path.write_text("# Written anew at each start of the local cluster.\n" + "".join(lines))


def _toml(value: Setting) -> str:
    # JSON's strings, numbers, booleans and lists of strings are also valid TOML, unless characters
    # are escaped as surrogate pairs.
    return json.dumps(value, ensure_ascii=False)
