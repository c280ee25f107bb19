"""What went wrong, out of what Spark makes of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

# The last line of a traceback of Python, as Spark has it among those of Java.
_RAISED = re.compile(r"^(?!org\.|java\.|py4j\.)(?:\w+\.)*[A-Z]\w*Error: (.+)$", re.MULTILINE)


def cause_of(text: str) -> str:
    """The message of the innermost error that Python code raised; else the first line."""
    found = _RAISED.findall(text)
    if found:
        return str(found[-1])
    return next(iter(text.strip().splitlines()), "Spark has failed, and does not say why")


def by_flags(problem: str, flags: Mapping[str, str]) -> str:
    """`flags`: what the data source says of an option, and how whoever called a job says it."""
    for of_option, of_flag in flags.items():
        problem = problem.replace(of_option, of_flag)
    return problem
