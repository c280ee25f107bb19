"""Errors in the commit log of an archive."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.errors import ErrorCode, TidelogError

_RIGHT = (
    "restore it, or run `archive repair`, which continues without it and takes what it had from "
    "the files of the table"
)


class DamagedCommitError(TidelogError):
    """A commit or a state is lost or damaged. `what`: the fault without the remedy."""

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, f"{what}: {_RIGHT}")
        self.what = what


class UncommittedFilesError(DamagedCommitError):
    """The table has files that no commit names: the newest commits are lost."""

    def __init__(self, paths: Sequence[str]) -> None:
        others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        super().__init__(
            f"no commit names {paths[0]}{others} of the table's files: the newest commit is "
            "missing, whose rows a run or a back-fill would archive again"
        )
