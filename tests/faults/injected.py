"""The faults that were injected, and their effects. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faults.effects import lacking, lacking_of_story
from faults.gaps import Window
from faults.plan import Step

# Precedes the location of a second process in the target of the fault that starts it.
SECOND_AT = ", at "


@dataclass(frozen=True, slots=True)
class Strike:
    """One occurrence of a fault. All times are of one monotonic clock.

    `begin_ms`: when its injection began.
    `end_ms`: when it was healed.
    `measured_force`: from when it was in force until healing began."""

    target: str
    begin_ms: int
    end_ms: int
    measures: Mapping[str, float]
    measured_force: Window | None = None

    @property
    def in_force(self) -> Window:
        return self.measured_force or Window(self.begin_ms, self.end_ms)

    @property
    def brokers(self) -> frozenset[str]:
        """The brokers that it struck; `target` has more, for people."""
        return frozenset(re.findall(r"\bbroker-\d+\b", self.target.partition(SECOND_AT)[0]))

    @property
    def second_place(self) -> str:
        """The location of the second process that it started; empty: it started none."""
        return self.target.partition(SECOND_AT)[2]


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """One fault that was injected.

    `times`: how often it was planned.
    `strikes`: its occurrences in order, at least one.
    `waits_s`: from the end of each occurrence but the last until the cluster was intact."""

    kind: str
    times: int
    strikes: Sequence[Strike]
    waits_s: Sequence[float] = ()

    @property
    def target(self) -> str:
        return "; ".join(dict.fromkeys(strike.target for strike in self.strikes))

    @property
    def end_ms(self) -> int:
        return self.strikes[-1].end_ms

    @property
    def lacks(self) -> list[str]:
        """Every occurrence needs its own effect: a surplus of one does not count for another."""
        found = [lack for strike in self.strikes for lack in lacking(self.kind, strike.measures)]
        if len(self.strikes) < self.times:
            found.append(f"it came {len(self.strikes)} of {self.times} times")
        return found


@dataclass(frozen=True, slots=True)
class DoneStep:
    """`whole_s`: from the end of its last fault until the cluster was intact; None: not in time.
    `logged`: after how many of its faults the effect of the story was logged."""

    step: Step
    faults: Sequence[InjectedFault]
    window: Window
    whole_s: float | None
    logged: int = 0

    @property
    def lacks(self) -> list[str]:
        """The effect that its faults together did not have."""
        return lacking_of_story(self.step, self.logged)

    @property
    def longest_whole_s(self) -> float | None:
        """Includes the recoveries between two occurrences of one fault."""
        if self.whole_s is None:
            return None
        return max([self.whole_s, *(wait for fault in self.faults for wait in fault.waits_s)])
