"""`make api-fuzz`: cases over the OpenAPI document against its own cluster; writes their results.

PYTHONPATH=tests python -m api_fuzz --cases 5000 --output out/api-fuzz.json"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from api_fuzz.clusters import Fuzzed, fuzzed_cluster
from api_fuzz.fuzzing import Fuzzer
from api_fuzz.upkeep import Upkeep

LEAST_SUCCESSES = 20


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory() as directory:
        fuzzer = asyncio.run(_fuzz(Path(directory), options.cases, options.seed))
    verdict = fuzzer.tallies.verdict(fuzzer.names, options.cases, LEAST_SUCCESSES)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    document = fuzzer.tallies.document(options.seed, verdict)
    options.output.write_text(json.dumps(document, indent=2) + "\n")
    for line in verdict:
        say(line)
    tallies = fuzzer.tallies
    least = min(tally.successes for tally in tallies.of.values())
    say(
        f"{tallies.cases} cases of {len(tallies.of)} operations, {tallies.server_errors} server "
        f"errors, at least {least} successful answers of each; {options.output} has them"
    )
    return 1 if verdict else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="api_fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("out/api-fuzz.json"))
    return parser.parse_args()


async def _fuzz(directory: Path, cases: int, seed: int) -> Fuzzer:
    async with fuzzed_cluster(directory) as fuzzed:
        return await asyncio.to_thread(fuzz, fuzzed, cases, seed)


def fuzz(fuzzed: Fuzzed, cases: int, seed: int) -> Fuzzer:
    upkeep = Upkeep(fuzzed.bootstrap, fuzzed.brokers)
    try:
        fuzzer = Fuzzer(fuzzed.url, upkeep, seed, say)
        fuzzer.run(cases)
    finally:
        upkeep.close()
    return fuzzer


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
