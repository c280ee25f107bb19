"""A fault that is in force."""

from __future__ import annotations

from typing import Protocol

from faults.effects import Measures


class Active(Protocol):
    @property
    def target(self) -> str:
        """Whom it strikes, for people."""

    async def measured(self) -> Measures:
        """What its effect has moved so far: asked while it lasts, and after `heal` until it
        shows an effect or the time for that is up."""

    async def heal(self) -> None:
        """Ends it. What it has ended runs again, though it may not serve yet."""
