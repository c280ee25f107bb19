"""Contexts: named clusters in a file of the user, one of which may be the current one.

The file is `tidelog/contexts.toml` in `$XDG_CONFIG_HOME` (by default `~/.config`):

    current = "prod"

    [contexts."prod"]
    bootstrap = "broker-1.example.com:7500,broker-2.example.com:7500"
    controllers = "controller-1.example.com:7400"
    protected = true

Only its owner can read it, because it will hold credentials later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidelog.cli.exit_status import UsageError

CONTEXT_VARIABLE = "TIDELOG_CONTEXT"
MAX_CONTEXTS = 200
MAX_FILE_BYTES = 1 << 20
MAX_NAME_LENGTH = 64
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_LENGTH - 1}}}")
_OWNER_ONLY = 0o600
_DIRECTORY_OF_OWNER = 0o700
_HEADING = "# Written by `tidelog context`, which does not keep comments.\n"


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster that the user has named.

    - `bootstrap`: addresses of brokers, as for --bootstrap.
    - `controllers`: addresses of controllers, by which explain and trace work while no broker
      answers; empty: they are not known.
    - `protected`: destructive commands require the context's name.
    """

    bootstrap: str
    controllers: str = ""
    protected: bool = False


@dataclass(frozen=True, slots=True)
class Contexts:
    """The content of the file. `current`: "" if no context is the current one."""

    path: Path
    current: str = ""
    by_name: Mapping[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """Raises `UsageError` that lists the known contexts."""
        context = self.by_name.get(name)
        if context is None:
            known = ", ".join(sorted(self.by_name))
            raise UsageError(
                f"there is no context {name!r} in {self.path}; "
                + (
                    f"the contexts are {known}"
                    if known
                    else "add it with: tidelog context add NAME --bootstrap HOST:PORT"
                )
            )
        return context

    def with_added(self, name: str, context: Context) -> Contexts:
        """Raises `UsageError` for an invalid name, and for too many contexts."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"the context name {name!r} is invalid; a name has 1 to {MAX_NAME_LENGTH} of a-z, "
                "A-Z, 0-9, '.', '_' and '-', and begins with a letter or a digit"
            )
        added = {**self.by_name, name: context}
        if len(added) > MAX_CONTEXTS:
            raise UsageError(
                f"{self.path} has {MAX_CONTEXTS} contexts, which is the most; remove one with: "
                "tidelog context remove NAME"
            )
        return replace(self, by_name=added)

    def without(self, name: str) -> Contexts:
        """Raises `UsageError` for an unknown name. If it was the current one, none is."""
        self.get(name)
        left = {other: context for other, context in self.by_name.items() if other != name}
        return replace(self, current="" if self.current == name else self.current, by_name=left)


def contexts_path() -> Path:
    import typer

    return Path(typer.get_app_dir("tidelog")) / "contexts.toml"


def load_contexts(path: Path) -> Contexts:
    """Returns no contexts if there is no file. Raises `UsageError` for a file that is invalid or
    cannot be read."""
    import tomllib

    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES:,} bytes")
        return _contexts_in(path, tomllib.loads(content.decode()))
    except FileNotFoundError:
        return Contexts(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}; correct it or delete it, or name brokers with "
            "--bootstrap host:port"
        ) from error


def _contexts_in(path: Path, document: Mapping[str, Any]) -> Contexts:
    """Raises `ValueError`."""
    _reject_unknown(document, ("current", "contexts"), "")
    tables, current = document.get("contexts", {}), document.get("current", "")
    if not isinstance(tables, dict) or not isinstance(current, str):
        raise ValueError("'contexts' is to be a table, and 'current' a string")
    contexts = Contexts(path)
    for name, table in tables.items():
        where = f"contexts.{name}: "
        if not isinstance(table, dict):
            raise ValueError(f"{where}it is to be a table")
        _reject_unknown(table, ("bootstrap", "controllers", "protected"), where)
        context = Context(
            table.get("bootstrap", ""), table.get("controllers", ""), table.get("protected", False)
        )
        addresses = (context.bootstrap, context.controllers)
        if not all(isinstance(each, str) for each in addresses) or not context.bootstrap:
            raise ValueError(f"{where}'bootstrap' is to be a string of host:port addresses")
        if not isinstance(context.protected, bool):
            raise ValueError(f"{where}'protected' is to be true or false")
        try:
            contexts = contexts.with_added(name, context)
        except UsageError as error:
            raise ValueError(str(error)) from error
    if current and current not in contexts.by_name:
        raise ValueError(f"'current' is {current!r}, and there is no such context")
    return replace(contexts, current=current)


def _reject_unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(table.keys() - set(known))
    if unknown:
        raise ValueError(f"{where}unknown key {unknown[0]!r}; the keys are {', '.join(known)}")


def to_toml(contexts: Contexts) -> str:
    lines = [_HEADING]
    if contexts.current:
        lines.append(f"current = {_quoted(contexts.current)}\n")
    for name, context in sorted(contexts.by_name.items()):
        lines.append(f"\n[contexts.{_quoted(name)}]\nbootstrap = {_quoted(context.bootstrap)}\n")
        if context.controllers:
            lines.append(f"controllers = {_quoted(context.controllers)}\n")
        if context.protected:
            lines.append("protected = true\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    """Names and addresses are checked: they have no characters that JSON and TOML escape
    differently."""
    import json

    return json.dumps(text, ensure_ascii=False)


def save_contexts(contexts: Contexts) -> None:
    """Replaces the file at once, so that another command reads the old or the new one. A link to it
    stays a link. Raises `OSError`."""
    import tempfile

    path = contexts.path.resolve()
    path.parent.mkdir(mode=_DIRECTORY_OF_OWNER, parents=True, exist_ok=True)
    # Made readable by its owner only.
    handle, temporary = tempfile.mkstemp(prefix=".contexts-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(to_toml(contexts))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_OWNER_ONLY)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
