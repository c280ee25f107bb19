"""Cases that Schemathesis generates from the OpenAPI document, sent to the gateway of a real
cluster.

For each operation half of the cases name existing things (`grounding`), a quarter is valid by the
document, and a quarter is invalid. Each answer is checked against the document."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, GenerationMode
from schemathesis import Case as AnyCase
from schemathesis.checks import not_a_server_error
from schemathesis.core import NOT_SET
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api_fuzz.grounding import NO_BODY, Facts, bounded, ground
from api_fuzz.tallies import Tallies
from api_fuzz.upkeep import Upkeep

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# A later answer counts as none.
ANSWER_SECONDS = 90
# After so many cases the cluster is restored.
CASES_BETWEEN_UPKEEP = 10
# How often Hypothesis is run again if it has too little to vary.
MAX_ROUNDS = 20
MAX_SHOWN = 600

Operation = APIOperation[Any, Any, Any, Any]
Case = AnyCase[Any]


class Fuzzer:
    """`report`: receives a line for each operation that is done."""

    def __init__(
        self, url: str, upkeep: Upkeep, seed: int, report: Callable[[str], object] = str
    ) -> None:
        self.tallies = Tallies()
        self._report = report
        self._url = url
        self._upkeep = upkeep
        self._seed = seed
        self._rng = random.Random(seed)
        self._session = requests.Session()
        self._schema = schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=ANSWER_SECONDS)
        self._until_upkeep = 0
        self._stale = True
        self._facts: Facts | None = None

    @property
    def operations(self) -> list[Operation]:
        found = []
        for result in self._schema.get_all_operations():
            assert isinstance(result, Ok), f"{result} cannot be asked"
            found.append(result.ok())
        return found

    @property
    def names(self) -> list[str]:
        return [_name(operation) for operation in self.operations]

    def run(self, cases: int) -> None:
        """Runs at least so many cases in all, with the same number for each operation."""
        operations = self.operations
        of_each = -(-cases // len(operations))
        for operation in operations:
            half = of_each - of_each // 2
            quarter = of_each // 4
            self._cases(operation, GenerationMode.POSITIVE, half, self._grounded)
            self._cases(operation, GenerationMode.NEGATIVE, quarter, self._send)
            self._cases(operation, GenerationMode.POSITIVE, of_each - half - quarter, self._send)
            tally = self.tallies.of[_name(operation)]
            self._report(
                f"{_name(operation)}: {tally.cases} cases, {tally.successes} successes, "
                f"{tally.server_errors} server errors"
            )

    def _cases(
        self,
        operation: Operation,
        mode: GenerationMode,
        count: int,
        visit: Callable[[Case], None],
    ) -> None:
        left = count

        def take(case: Case) -> None:
            nonlocal left
            if left > 0:
                left -= 1
                visit(case)

        for number in range(MAX_ROUNDS):
            if left <= 0:
                return
            try:
                _generate(operation, mode, left, self._seed + number, take)
            except Unsatisfiable:
                # A case without parameters cannot be wrong.
                mode = GenerationMode.POSITIVE
        assert left <= 0, f"{_name(operation)}: {left} of {count} cases could not be made"

    def _grounded(self, case: Case) -> None:
        # An operation that the previous case started would keep its partitions busy, and make the
        # facts stale.
        if self._stale:
            self._until_upkeep = 0
        self._look_after()
        assert self._facts is not None
        grounds = ground(_name(case.operation), self._facts, self._rng)
        case.path_parameters = {**(case.path_parameters or {}), **grounds.path}
        query = {k: v for k, v in (case.query or {}).items() if k not in grounds.absent}
        case.query = {**query, **grounds.query}
        for name in grounds.absent:
            if case.headers and name in case.headers:
                del case.headers[name]
        if grounds.body is not NO_BODY:
            case.body = grounds.body
            case.media_type = "application/json"
        self._send(case)

    def _send(self, case: Case) -> None:
        self._look_after()
        name = _name(case.operation)
        body = None if case.body is NOT_SET else case.body
        query, bounded_body = bounded(name, case.query or {}, body)
        case.query = query
        if case.body is not NOT_SET:
            case.body = bounded_body
        answer = case.call(base_url=self._url, session=self._session, timeout=ANSWER_SECONDS)
        self.tallies.add(name, answer.status_code)
        self._stale |= case.method != "GET" and answer.status_code < 300
        self._until_upkeep -= 1
        try:
            case.validate_response(answer, checks=CHECKS)
        except FailureGroup as group:
            for failure in group.exceptions:
                said = f"{name}: {failure.title}: {failure.message}"
                self.tallies.add_wrong(f"{said[:MAX_SHOWN]} [{answer.text[:MAX_SHOWN]}]")

    def _look_after(self) -> None:
        if self._until_upkeep <= 0 or self._facts is None:
            self._facts = self._upkeep.restore()
            self._until_upkeep = CASES_BETWEEN_UPKEEP
            self._stale = False


def _name(operation: Operation) -> str:
    return str(operation.definition.raw["operationId"])


def _generate(
    operation: Operation,
    mode: GenerationMode,
    count: int,
    seed: int,
    take: Callable[[Case], None],
) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    # The number prevents operations with little to vary from having a single case.
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode), _number=st.integers())
    def each(case: Case, _number: int) -> None:
        take(case)

    each()
