"""One line in place of a traceback, where a command's extra is not installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import NoReturn

EXIT_NOT_INSTALLED = 2


def is_installed(*modules: str) -> bool:
    return all(find_spec(module) is not None for module in modules)


def exit_not_installed(command: str, requirement: str) -> NoReturn:
    """`requirement`: what pip has to install, such as tidelog[cli]."""
    sys.stderr.write(
        f"{command}: parts of this command are not installed; install them: "
        f"pip install '{requirement}'\n"
    )
    raise SystemExit(EXIT_NOT_INSTALLED)
