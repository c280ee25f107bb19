"""The results of the cases, counted by operation. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

# How many wrong answers are kept with their text.
MAX_KEPT = 20


@dataclass(slots=True)
class Tally:
    """The results of one operation."""

    cases: int = 0
    successes: int = 0
    server_errors: int = 0
    by_status: Counter[int] = field(default_factory=Counter)

    def add(self, status: int) -> None:
        self.cases += 1
        self.successes += 200 <= status < 300
        self.server_errors += status >= 500
        self.by_status[status] += 1

    def as_json(self) -> dict[str, object]:
        """Returns the keys of an operation.

        - `cases`, `successes`, `server_errors`: how many requests were sent, how many of them
          succeeded (2xx), and how many had a status of 500 or more.
        - `by_status`: how many had each status.
        """
        return {
            "cases": self.cases,
            "successes": self.successes,
            "server_errors": self.server_errors,
            "by_status": {str(s): n for s, n in sorted(self.by_status.items())},
        }


@dataclass(slots=True)
class Tallies:
    """`wrong`: answers that the document does not allow, server errors among them."""

    of: dict[str, Tally] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    wrong_count: int = 0

    def add(self, operation: str, status: int) -> None:
        self.of.setdefault(operation, Tally()).add(status)

    def add_wrong(self, what: str) -> None:
        self.wrong_count += 1
        if len(self.wrong) < MAX_KEPT:
            self.wrong.append(what)

    @property
    def cases(self) -> int:
        return sum(tally.cases for tally in self.of.values())

    @property
    def server_errors(self) -> int:
        return sum(tally.server_errors for tally in self.of.values())

    def verdict(self, operations: list[str], cases: int, least_successes: int) -> list[str]:
        """What is missing, one line each; empty: all is well."""
        missing = [f"{name} was never asked" for name in operations if name not in self.of]
        missing += [
            f"{name} had {tally.successes} successful answers, and needs {least_successes}"
            for name, tally in sorted(self.of.items())
            if tally.successes < least_successes
        ]
        if self.cases < cases:
            missing.append(f"there were {self.cases} cases, and there have to be {cases}")
        if self.server_errors:
            missing.append(f"there were {self.server_errors} server errors")
        if self.wrong_count:
            missing.append(f"{self.wrong_count} answers are not as the document has them")
        return missing + self.wrong

    def document(self, seed: int, verdict: list[str]) -> dict[str, object]:
        """Returns the keys of `out/api-fuzz.json`.

        - `seed`, `cases`: the seed of the cases, and their number.
        - `server_errors`: the number of answers with a status of 500 or more.
        - `not_as_documented`, `wrong`: the number of answers that the OpenAPI document does not
          allow, and the first of them.
        - `operations`: the results by operation.
        - `verdict`: `ok`, or what is missing or failed.
        """
        return {
            "seed": seed,
            "cases": self.cases,
            "server_errors": self.server_errors,
            "not_as_documented": self.wrong_count,
            "wrong": self.wrong,
            "operations": {name: tally.as_json() for name, tally in sorted(self.of.items())},
            "verdict": verdict or ["ok"],
        }
