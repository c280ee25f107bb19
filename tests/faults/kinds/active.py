"""A fault that is in force."""

from __future__ import annotations

from typing import Protocol

from faults.effects import Measures


class Active(Protocol):
    @property
    def target(self) -> str:
        """The services that it strikes, for people."""

    async def measured(self) -> Measures:
        """What its effect has changed so far.

        Called while the fault lasts, and after `heal` until it shows an effect or its time is
        up."""

    async def heal(self) -> None:
        """Ends the fault. A stopped process runs again, though it may not serve yet."""
