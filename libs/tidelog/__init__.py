"""What users of Tidelog import: the client, its types and errors, and the CLI."""

from tidelog.former_modules import FORMER_MODULES, accept_former_modules

accept_former_modules(FORMER_MODULES)
