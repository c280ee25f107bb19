"""`python -m mutants.explore faults=1 records=1 epochs=2 kinds=crash,reboot`: what the model
finds in one scenario, as a line of JSON: `name` of the invariant, or null; `complete`: whether
every state was seen."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from model.explore import Exploration
from model.scenarios import KINDS, LATE, Scenario, of

MAX_STATES = 3_000_000
MAX_SECONDS = 240
NUMBERS = ("faults", "records", "epochs", "in_flight")
NAMES = {"late": LATE, "kinds": KINDS}
# Words without a value: the topic's durability is synced; it allows unclean elections.
FLAGS = ("synced", "unclean")


def scenario(words: Sequence[str]) -> Scenario:
    """Raises ValueError for what no scenario has."""
    values: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        if word in FLAGS:
            values[word] = True
        elif key in NUMBERS:
            values[key] = int(value)
        elif key in NAMES and set(value.split(",")) <= NAMES[key].keys():
            values[key] = of(*value.split(","))
        else:
            named = (f"{key} (of {', '.join(known)})" for key, known in NAMES.items())
            known = ", ".join([*NUMBERS, *FLAGS, *named])
            raise ValueError(f"{word!r} is nothing that a scenario has: {known}")
    return Scenario("planted", **values)


def main(words: Sequence[str]) -> int:
    """Safety alone: that a cluster stands still is found by the simulation."""
    outcome = Exploration(scenario(words), heals=False).run(
        max_states=MAX_STATES, max_seconds=MAX_SECONDS
    )
    name = outcome.violation.invariant if outcome.violation else None
    found = {"name": name, "states": outcome.states, "complete": outcome.complete}
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if name else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
