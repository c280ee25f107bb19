"""The scenarios of `make model`, and the smaller ones of `make test`; the largest first."""

from __future__ import annotations

from .scenarios import Scenario, controls, of

# Each fault that a cluster can have in one controller term, beside late fetches and ISR changes.
_ONE_FAULT = of("crash", "reboot", "lag", "lease", "stop", "damage")
_CHOSEN = (
    Scenario("all together", 1, 2, 3, 1, of("fetch", "isr"), _ONE_FAULT),
    Scenario("late fetches and answers", 1, 2, 3, 1, of("fetch", "answer"), of("crash", "reboot")),
    Scenario("crashes", faults=2, records=2, epochs=2),
    Scenario("zombie leaders", 2, 1, 3, kinds=of("lease")),
    Scenario("reboots and recovery", 2, 1, 3, kinds=of("reboot", "crash")),
    Scenario("ISR changes without an answer", 2, 1, 2, 1, of("isr"), of("crash", "lag")),
    Scenario("zombie controllers", 2, 1, 2, 1, of("election"), of("controller", "lease")),
    Scenario(
        "two controller terms", 2, 0, 2, 1, of("election", "command"), of("controller", "crash")
    ),
    Scenario("controlled shutdown", 2, 1, 3, kinds=of("stop", "crash")),
    Scenario("synced, reboots", 2, 1, 3, kinds=of("reboot"), synced=True),
    Scenario("synced, more records", 1, 2, 2, kinds=of("reboot"), synced=True),
    Scenario("two controllers", 1, 1, 3, 1, of("election", "command"), of("controller", "crash")),
    Scenario("registering, reboots", 1, 1, 3, 0, of("registration"), of("reboot", "crash")),
    Scenario("registrations seen late", 1, 1, 3, 0, of("registration", "view"), of("reboot")),
    Scenario("registrations of previous incarnations", 1, 1, 2, 0, of("registration", "view")),
    Scenario("stopping seen late", 1, 1, 2, 0, of("view"), of("stop", "lag")),
    Scenario("deleted topics, late commands", 1, 1, 2, 1, of("command", "stop"), of("delete")),
    Scenario("deleted topics, brokers away", 2, 1, 2, kinds=of("delete", "lease")),
    Scenario("deposed controllers stop", 2, 1, 2, 1, of("stop"), of("delete", "controller")),
    Scenario("moved away and back", 2, 1, 2, 1, of("stop"), of("move", "lag")),
    Scenario("moved by operations, and back", 2, 1, 3, 1, of("stop"), of("reassign")),
    Scenario("moved, late commands", 1, 1, 2, 1, of("command", "stop"), of("reassign")),
    Scenario("moved, shrinking ISR", 3, 1, 3, kinds=of("reassign", "lag")),
    Scenario("moved, crashes", 2, 0, 3, kinds=of("reassign", "crash")),
    Scenario("moved, another controller", 2, 0, 3, 1, of("election"), of("reassign", "controller")),
    Scenario("moved, an ISR change without an answer", 1, 1, 3, 1, of("isr"), of("reassign")),
    Scenario("two late fetches", 1, 1, 2, 2, of("fetch")),
    Scenario("replaced directories", 2, 1, 2, kinds=of("directory", "crash")),
    Scenario("copied directories", 2, 1, 2, kinds=of("copy", "crash")),
    Scenario("unclean elections", faults=2, records=1, epochs=3, unclean=True),
    Scenario("reboots, more records", 1, 2, 4, kinds=of("reboot")),
    Scenario("two ISR changes under way", 1, 1, 2, 2, of("isr"), of("crash", "lag")),
)
FULL = (*_CHOSEN, *controls(_CHOSEN))
QUICK = (
    Scenario("crashes", faults=1, records=1, epochs=2),
    Scenario("shrinking ISR", 1, 1, 2, kinds=of("crash", "lag")),
    Scenario("reboots and recovery", 1, 1, 3, kinds=of("reboot")),
    Scenario("damage and resignation", 1, 1, 2, kinds=of("damage")),
    Scenario("controlled shutdown", 1, 1, 2, kinds=of("stop")),
    Scenario("zombie leaders", 1, 1, 2, kinds=of("lease")),
    Scenario("replaced and copied directories", 1, 1, 2, kinds=of("directory", "copy")),
    Scenario("registering", 1, 1, 2, 0, of("registration"), of("lease")),
    Scenario("deleted topics", 1, 1, 2, 1, of("stop"), of("delete")),
    Scenario("moved away and back", 1, 1, 2, 1, of("stop"), of("move")),
    Scenario("moved by operations", 1, 1, 2, kinds=of("reassign")),
    Scenario("late fetches and answers", 1, 1, 2, 1, of("fetch", "answer")),
    Scenario("late fetches and ISR changes", 1, 1, 2, 1, of("fetch", "isr"), of("reboot", "lag")),
    Scenario("zombie controllers", 1, 1, 2, 1, of("election"), of("controller", "lease")),
    Scenario("two controllers", 1, 0, 2, 1, of("command"), of("controller", "crash")),
    Scenario("stopping seen late", 1, 0, 2, 0, of("view"), of("stop", "lag")),
    Scenario("synced, reboots", 1, 1, 2, kinds=of("reboot"), synced=True),
)
