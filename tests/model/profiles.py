"""The scenarios of `make model`, and the smaller ones of `make test`; the largest first."""

from __future__ import annotations

from .scenarios import Scenario, of

CRASHES = Scenario("crashes", faults=2, records=1, epochs=3)
MORE_RECORDS = Scenario("two records", faults=1, records=2, epochs=3)
SHRINKS = Scenario("shrinking ISR", faults=2, records=1, epochs=2, kinds=of("crash", "lag"))
LATE_DATA = Scenario("late fetches and answers", 1, 1, 2, 1, of("fetch", "answer"), of("crash"))
LATE_ISR = Scenario("ISR changes without an answer", 2, 1, 2, 1, of("isr"), of("crash", "lag"))
TWO_ISR_CHANGES = Scenario("two ISR changes under way", 1, 1, 2, 2, of("isr"), of("crash", "lag"))
REBOOTS = Scenario("reboots and recovery", 1, 2, 4, kinds=of("reboot"))
CONTROLLERS = Scenario(
    "two controllers", 1, 1, 3, 1, of("election", "command"), of("reign", "crash")
)
ZOMBIES = Scenario("zombie leaders", 2, 1, 3, kinds=of("lease"))
DAMAGE = Scenario("damage and resignation", 1, 1, 3, 1, of("isr"), of("damage"))
STOPS = Scenario("controlled shutdown", 2, 1, 3, kinds=of("stop", "crash"))

FULL = (
    CRASHES,
    STOPS,
    ZOMBIES,
    LATE_ISR,
    DAMAGE,
    CONTROLLERS,
    REBOOTS,
    SHRINKS,
    LATE_DATA,
    TWO_ISR_CHANGES,
    MORE_RECORDS,
)
QUICK = (
    Scenario("crashes", faults=1, records=1, epochs=2),
    Scenario("shrinking ISR", 1, 1, 2, kinds=of("crash", "lag")),
    Scenario("reboots and recovery", 1, 1, 3, kinds=of("reboot")),
    Scenario("damage and resignation", 1, 1, 2, kinds=of("damage")),
    Scenario("controlled shutdown", 1, 1, 2, kinds=of("stop")),
    Scenario("zombie leaders", 1, 1, 2, kinds=of("lease")),
)
