"""Spark jobs over the contents of a cluster: `python -m tidelog_pipeline JOB`."""

from tidelog.former_modules import accept_former_modules
from tidelog_pipeline.former_modules import FORMER_MODULES

accept_former_modules(FORMER_MODULES)
