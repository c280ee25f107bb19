"""The simulator's store keeps the contract of metadata stores."""

from __future__ import annotations

import pytest

from contract import test_metadata_store
from contract.simulated import Case, SimHarness, cases
from tidelog_runtime.metadata.store import MetadataStore

CASES = list(cases(test_metadata_store))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_simulated_store_keeps_the_metadata_store_contract(case: Case) -> None:
    case.run(SimHarness())


def test_every_class_of_the_contract_has_cases() -> None:
    assert {case.owner.__name__ for case in CASES} == {
        name for name in vars(test_metadata_store) if name.startswith("Test")
    }


def test_a_store_that_breaks_the_contract_fails_its_case() -> None:
    class TestOfNoStore:
        async def test_it_forgets(self, store: MetadataStore, prefix: str) -> None:
            assert await store.get(prefix) is not None

    with pytest.raises(AssertionError):
        Case(TestOfNoStore, "test_it_forgets", {}).run(SimHarness())
