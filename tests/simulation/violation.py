"""The exception for a violated invariant."""

from __future__ import annotations


class Violation(Exception):  # noqa: N818 - it is a finding, not an error of the program
    """An invariant does not hold.

    - `name`: of the invariant
    - `fields`: where it does not hold
    """

    def __init__(self, name: str, message: str, **fields: object) -> None:
        said = " ".join(f"{key}={value}" for key, value in fields.items())
        super().__init__(f"{name}: {message}" + (f" ({said})" if said else ""))
        self.name = name
        self.message = message
        self.fields = fields
