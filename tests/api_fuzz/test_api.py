"""Every operation of the gateway gives a documented answer to any request, on a real cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from api_fuzz.__main__ import fuzz
from api_fuzz.clusters import fuzzed_cluster
from api_fuzz.fuzzing import Fuzzer
from api_fuzz.grounding import GROUNDS
from api_fuzz.tallies import Tallies

# `make api-fuzz` has more of both.
CASES = 400
LEAST_SUCCESSES = 3
SEED = 1

# A cluster, and some hundred requests, some of which move partitions.
pytestmark = pytest.mark.timeout(280)


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    directory = tmp_path_factory.mktemp("fuzzed")

    async def run(directory: Path) -> Fuzzer:
        async with fuzzed_cluster(directory) as fuzzed:
            fuzzer = await asyncio.to_thread(fuzz, fuzzed, CASES, SEED)
            assert fuzzed.process.running, fuzzed.process.log_tail()
            return fuzzer

    return asyncio.run(run(directory))


def test_no_case_is_a_server_error_and_every_operation_succeeds(fuzzer: Fuzzer) -> None:
    assert fuzzer.tallies.verdict(fuzzer.names, CASES, LEAST_SUCCESSES) == []


def test_no_operation_of_the_document_is_left_out(fuzzer: Fuzzer) -> None:
    assert sorted(fuzzer.tallies.of) == sorted(fuzzer.names)
    assert len(fuzzer.names) == len(set(fuzzer.names)) >= len(GROUNDS)
    assert GROUNDS.keys() <= set(fuzzer.names)


@pytest.mark.parametrize(
    ("statuses", "missing"),
    [
        ([200] * 3, ""),
        ([200, 200, 404], "a had 2 successful answers"),
        ([200] * 3 + [500], "there were 1 server errors"),
        ([200] * 3 + [503], "there were 1 server errors"),
        ([200] * 2, "there were 2 cases"),
        ([], "a was never asked"),
    ],
)
def test_missing_coverage_is_reported(statuses: list[int], missing: str) -> None:
    tallies = Tallies()
    for status in statuses:
        tallies.add("a", status)
    verdict = tallies.verdict(["a"], 3, 3)
    assert any(line.startswith(missing) for line in verdict) if missing else verdict == []


def test_an_undocumented_answer_is_reported() -> None:
    tallies = Tallies()
    tallies.add("a", 200)
    tallies.add_wrong("a: it has no field topic")
    assert tallies.verdict(["a"], 1, 1)[-1] == "a: it has no field topic"
