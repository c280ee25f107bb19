"""The verdicts of the parts of a check, and their sum."""

from __future__ import annotations

import pickle
import resource
from collections.abc import Iterable
from typing import Any, NamedTuple

from tidelog.history import Report


class TaskVerdict:
    """The verdict of one part.

    A history that contradicts itself has no report. The first contradicting line counts,
    whichever part finds it.
    """

    def __init__(self) -> None:
        self.report = Report()
        self._error: tuple[int, str] | None = None

    def contradicted(self, line: int, error: Exception) -> None:
        if self._error is None or line < self._error[0]:
            self._error = (line, str(error))

    def fields(self) -> dict[str, Any]:
        """Returns the verdict as columns."""
        line, error = self._error or (None, None)
        return {
            "report": pickle.dumps(self.report),
            "error_line": line,
            "error": error,
            "peak_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }


class Verdict(NamedTuple):
    """The verdict of all parts.

    - `error`: line and text.
    - `worker_peak_kb`: the highest resident memory of a worker.
    """

    report: Report
    error: tuple[int, str] | None
    worker_peak_kb: int


def merge_verdicts(parts: Iterable[tuple[bytes, int | None, str | None, int]]) -> Verdict:
    """Merges the verdicts of all parts, whose fields are in the order of the columns."""
    report, errors, peak_kb = Report(), [], 0
    for blob, line, error, kb in parts:
        report.merge(pickle.loads(blob))
        peak_kb = max(peak_kb, kb)
        if line is not None and error is not None:
            errors.append((line, error))
    return Verdict(report, min(errors, default=None), peak_kb)
