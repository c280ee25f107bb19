"""Scenarios: profiles of faults, each with the budgets within which it is explored exhaustively."""

from __future__ import annotations

from typing import NamedTuple

from . import rules
from .rules import Rule


class Scenario(NamedTuple):
    """Budgets, and what may happen.

    - `faults`: how many of `kinds` happen in one history
    - `records`: appends
    - `epochs`: leader epochs, with the first one
    - `in_flight`: messages between sending and arrival at a time; one that arrives at once
      needs no room
    - `late`: messages that take time, and may be lost or overtaken
    - `synced`: the topic's durability
    - `unclean`: the topic allows unclean elections of any live replica; broker 3 begins outside
      of the ISR, so that two faults are enough for one
    """

    name: str
    faults: int
    records: int
    epochs: int
    in_flight: int = 0
    late: frozenset[str] = frozenset()  # of LATE
    kinds: frozenset[str] = frozenset({"crash"})  # of KINDS
    synced: bool = False
    unclean: bool = False

    @property
    def has_topics(self) -> bool:
        """Whether replicas come and go: then the form of a command matters."""
        return bool(self.kinds & {"delete", "move", "reassign"})

    def lies_within(self, other: Scenario) -> bool:
        """Whether every history of this scenario is a history of the other one."""
        budgets = (self.faults, self.records, self.epochs, self.in_flight)
        others = (other.faults, other.records, other.epochs, other.in_flight)
        return (
            all(own <= its for own, its in zip(budgets, others, strict=True))
            and self.late <= other.late
            and self.kinds <= other.kinds
            and (self.synced, self.unclean) == (other.synced, other.unclean)
            # The form of commands at the start depends on it.
            and self.has_topics == other.has_topics
        )

    def budgets(self) -> dict[str, bool | int | list[str]]:
        return {
            "faults": self.faults,
            "records": self.records,
            "epochs": self.epochs,
            "in_flight": self.in_flight,
            "late": sorted(self.late),
            "kinds": sorted(self.kinds),
            "synced": self.synced,
            "unclean": self.unclean,
        }


LATE = {
    "fetch": "a follower's request",
    "answer": "a leader's answer to a late request",
    "isr": "a leader's ISR change, whose answer never comes",
    "registration": "the answer to a broker that registers",
    "view": "news of registrations, to controller and leaders",
    "election": "a controller's transaction",
    "command": "a controller's LeaderAndISR",
    "stop": "a controller's StopReplica",
}
KINDS = {
    "crash": "a process ends",
    "reboot": "a machine reboots, and any end of its log that was not synced is lost",
    "lease": "a registration ends while its broker runs: a zombie leader",
    "lag": "a follower that keeps up is found to lag",
    "controller": "another controller is elected",
    "directory": "an empty data directory takes a broker's id; the old one may come back",
    "copy": "a data directory is copied, and the copy takes its place, for a time or for good",
    "damage": "a replica is found damaged: it resigns and is cut",
    "stop": "a broker is stopping",
    "delete": "the topic is deleted, and created again under its name",
    "move": "a replica is assigned to another broker and back",
    "reassign": "an operation moves the partition to other replicas, or is cancelled",
}


def of(*names: str) -> frozenset[str]:
    return frozenset(names)


class Removal(NamedTuple):
    """A rule that is switched off, and the budgets within which this shows."""

    rule: Rule
    scenario: Scenario


def _removal(rule: Rule, faults: int, records: int, epochs: int, **more: object) -> Removal:
    return Removal(rule, Scenario("without", faults, records, epochs, **more))  # type: ignore[arg-type]


# R1 to R4 of docs/internals/protocol.md (R4 has two halves), then further rules.
REMOVALS = (
    _removal(rules.RECONCILE, 1, 2, 2),
    _removal(rules.FENCED_TRUNCATION, 1, 2, 2, in_flight=1, late=of("fetch", "answer")),
    _removal(rules.FENCED_FETCH, 1, 1, 2, in_flight=1, late=of("fetch"), kinds=of("damage")),
    _removal(
        rules.JOINS_AT_EPOCH_START,
        1,
        1,
        2,
        in_flight=1,
        late=of("fetch"),
        kinds=of("reboot"),
    ),
    _removal(rules.JOINS_AT_HIGH_WATERMARK, 1, 1, 1, kinds=of("lag")),
    _removal(rules.MAXIMAL_ISR, 1, 1, 1, kinds=of("lag")),
    _removal(rules.MIN_ISR, 2, 1, 1, kinds=of("lag")),
    _removal(rules.ELIGIBLE, 1, 1, 2),
    _removal(rules.WHOLE, 1, 1, 2, kinds=of("reboot")),
    _removal(rules.LAST_REGISTRATION, 2, 1, 2, kinds=of("directory", "crash")),
    _removal(rules.COPIED_FILES, 1, 1, 2, kinds=of("copy")),
    _removal(rules.COUNTED_END, 1, 1, 2, kinds=of("reboot"), synced=True),
    _removal(rules.WHOLE_BY_DURABILITY, 1, 1, 2, kinds=of("reboot")),
    _removal(rules.PREVIOUS_INCARNATION, 1, 1, 1),
    _removal(
        rules.CONTROLLER_EPOCH,
        2,
        0,
        1,
        in_flight=1,
        late=of("command"),
        kinds=of("controller", "lag"),
    ),
    _removal(
        rules.CONTROLLER_KEY_GUARD,
        2,
        0,
        2,
        in_flight=1,
        late=of("election"),
        kinds=of("controller", "crash"),
    ),
    _removal(rules.REVISION_ORDER, 1, 1, 2, in_flight=1, late=of("command"), kinds=of("stop")),
    _removal(rules.LEADER_INCARNATION, 1, 1, 1, late=of("registration")),
    _removal(rules.JOINER_GUARD, 2, 0, 1, late=of("view"), kinds=of("stop", "lag")),
    _removal(rules.STOP_ORDER, 1, 1, 2, in_flight=1, late=of("stop"), kinds=of("move")),
    _removal(rules.STOP_TOPIC, 1, 1, 2, in_flight=1, late=of("stop"), kinds=of("delete")),
    _removal(
        rules.STOPPED_REMEMBERED, 1, 0, 2, in_flight=1, late=of("command"), kinds=of("delete")
    ),
    _removal(rules.STRAYS_ORDER, 1, 1, 2, in_flight=1, late=of("command"), kinds=of("delete")),
    _removal(rules.FETCH_TOPIC, 1, 2, 2, in_flight=1, late=of("fetch"), kinds=of("delete")),
    _removal(rules.SWITCH_IN_SYNC, 2, 0, 3, kinds=of("reassign")),
    _removal(rules.ENDS_WITH_ISR, 3, 1, 3, kinds=of("reassign", "lag")),
    _removal(rules.END_EPOCH, 1, 0, 2, kinds=of("reassign")),
    _removal(rules.RESIGNED_EPOCH, 1, 1, 3, kinds=of("damage")),
    _removal(rules.REPEATED_ANSWER, 1, 2, 2, in_flight=1, late=of("fetch", "answer")),
)


def controls(scenarios: tuple[Scenario, ...]) -> tuple[Scenario, ...]:
    """Returns budgets of removals that lie within none of these scenarios.

    A rule is shown to be needed only if nothing is found while it is in force.
    """
    return tuple(
        removal.scenario._replace(name=f'with the rule "{removal.rule.name}"')
        for removal in REMOVALS
        if not any(removal.scenario.lies_within(scenario) for scenario in scenarios)
    )
