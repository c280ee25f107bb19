"""Former names of modules. They can be imported until the version FORMER_NAMES_END."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

FORMER_NAMES_END = "0.3.0"

FORMER_MODULES = {
    "tidelog.client.operations": "tidelog.admin_messages",
    "tidelog.client.topic_details": "tidelog.admin_messages",
    "tidelog.history.operations": "tidelog.history.client_operations",
    "tidelog.inspection.model": "tidelog.inspection.state_reports",
}


class _FormerModules:
    """A finder and loader of modules by their former names. An import gives the module itself, so
    that what a caller sets in it by either name has an effect."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in self._modules else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Leaves the creation of a module to the import system; `exec_module` replaces it."""

    def exec_module(self, module: ModuleType) -> None:
        former = module.__name__
        name = self._modules[former]
        warnings.warn(
            f"{former} is a former name of {name}, and is removed in version {FORMER_NAMES_END}",
            DeprecationWarning,
            stacklevel=2,
        )
        sys.modules[former] = import_module(name)


def accept_former_modules(modules: Mapping[str, str]) -> None:
    """Lets imports find modules by their former names. The keys are former names."""
    # Behind the other finders: only imports that they cannot find reach this one.
    sys.meta_path.append(_FormerModules(modules))
