"""Extracts the cause of a failure, as one line, from the text that Spark reports. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

# The last line of a Python traceback within a Java one.
_RAISED = re.compile(r"^(?!org\.|java\.|py4j\.)(?:\w+\.)*[A-Z]\w*Error: (.+)$", re.MULTILINE)
# The first line of a Java exception, or of the cause of one.
_JAVA_NAME = r"((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Error|Exception)(?:: .+)?)$"
_JAVA_RAISED = re.compile(r"^(?:Caused by: |: )?" + _JAVA_NAME, re.MULTILINE)
# The first line of a Java exception that Spark reports as the cause of a failed query.
_JAVA_CAUSE = re.compile(r"^(?:Caused by: |: )" + _JAVA_NAME, re.MULTILINE)
_NO_CAUSE = "Spark has failed, and does not say why"


def cause_of(text: str) -> str:
    """Returns the message of the innermost error that Python code raised.

    If there is none: the innermost cause that Java names, such as a full disk, or else the
    first line.
    """
    found = _RAISED.findall(text)
    if found:
        return str(found[-1])
    causes = _JAVA_CAUSE.findall(text)
    if causes:
        return f"Spark failed with {causes[-1]}"
    return next(iter(text.strip().splitlines()), _NO_CAUSE)


def cause_of_java(text: str) -> str:
    """Returns the innermost cause of an exception, preferring that of Python code.

    - `text`: py4j's report of a Java exception for which PySpark has no class.
    """
    of_java = _JAVA_RAISED.findall(text)
    if of_java and not _RAISED.search(text):
        return f"Spark failed with {of_java[-1]}"
    return cause_of(text)


def by_flags(problem: str, flags: Mapping[str, str]) -> str:
    """Replaces names of the data source's options by the flags of a job.

    - `flags`: the text of the data source, and the text for the caller of the job.
    """
    for of_option, of_flag in flags.items():
        problem = problem.replace(of_option, of_flag)
    return problem
