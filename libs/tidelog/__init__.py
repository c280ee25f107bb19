"""What users of Tidelog import: the client, its types and errors, and the CLI."""

from tidelog.former_modules import FORMER_MODULES, accept_former_modules
from tidelog.version import __version__

__all__ = ["__version__"]

accept_former_modules(FORMER_MODULES)
