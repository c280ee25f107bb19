"""What `services/pyproject.toml` cannot say by itself: which version of `tidelog` is required, and
that `libs/tidelog_runtime`, which is outside this directory, belongs to the distribution."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_OWN = re.compile(r"tidelog(-services)?(\[[a-z]+\])?")
_RUNTIME = "tidelog_runtime"


class OwnVersions(MetadataHookInterface):
    """Requires exactly this version of each own distribution."""

    def update(self, metadata: dict[str, Any]) -> None:
        version = metadata["version"]

        def pinned(requirements: list[str]) -> list[str]:
            return [f"{r}=={version}" if _OWN.fullmatch(r) else r for r in requirements]

        extras = self.config["optional-dependencies"]
        metadata["dependencies"] = pinned(self.config["dependencies"])
        metadata["optional-dependencies"] = {name: pinned(extras[name]) for name in extras}


class Runtime(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the package. In a source distribution it is in the directory itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable installation finds it by `dev-mode-dirs`.
        if version == "editable":
            return
        in_repository = Path(self.root).parent / "libs" / _RUNTIME
        source = in_repository if in_repository.is_dir() else Path(self.root) / _RUNTIME
        build_data["force_include"][str(source)] = _RUNTIME
