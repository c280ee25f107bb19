"""Every command rejects an impossible number before it calls the cluster. The error gives valid
values and is never an internal error."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.core import TyperOption
from typer.testing import CliRunner, Result

from tidelog.cli.__main__ import app
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.session import Session
from unit.cli.test_manual import COMMANDS

NO_CLUSTER = "127.0.0.1:1"
# The parser's own range check let the first of these through.
NO_TIMES = ("nan", "inf", "-inf", "1e300", "-1", "0")
OWN_BOUNDS = ("produce", "consume", "bench produce", "bench consume", "operations watch")
# Other required arguments of the commands.
WORDS = {
    "name": ["sea"],
    "topic": ["sea"],
    "topics": ["sea"],
    "broker_id": ["1"],
    "broker_ids": ["1"],
    "operation_id": ["grow"],
    "reversed_operation_id": ["grow"],
    "rate": ["50MB"],
    "moves": ["sea/0=1"],
    "leaders": ["sea/0=1"],
    "partitions": ["--partitions", "1"],
    "replication_factor": ["--replication-factor", "1"],
    "files": ["--file", "-"],
    "directory": ["backup-1"],
}
MORE = {
    "topics alter-config": ["--set", "segment_ms=60000"],
    "brokers maintenance": ["--on"],
    "throttle set": ["--dry-run"],
}


# A valid file of topics: `apply` reads it before it checks --timeout.
STDIN = "topics: {}"


def command_line(name: str) -> list[str]:
    command = COMMANDS[name]
    needed = [
        param.name or "" for param in command.params if param.required or param.name == "moves"
    ]
    needs_consent = any("--yes" in param.opts for param in command.params)
    words = [word for each in needed for word in WORDS[each]]
    return [*name.split(), *words, *MORE.get(name, []), *(["--yes"] if needs_consent else [])]


def times() -> Iterator[tuple[str, str]]:
    for name, command in sorted(COMMANDS.items()):
        for param in command.params:
            is_duration = isinstance(param, TyperOption) and param.metavar == "DURATION"
            # A batch need not linger.
            if is_duration and "--linger-ms" not in param.opts:
                yield name, param.opts[0]


def run(words: list[str]) -> Result:
    session = Session(NO_CLUSTER, interactive=False)
    return CliRunner().invoke(app, words, input=STDIN, obj=session)


@pytest.mark.parametrize(("name", "option"), list(times()))
def test_an_invalid_timeout_is_rejected_with_valid_values(name: str, option: str) -> None:
    for stated in NO_TIMES if name in OWN_BOUNDS else NO_TIMES[:2]:
        result = run([*command_line(name), "--json", f"{option}={stated}"])
        assert (stated, result.exit_code) == (stated, ExitStatus.USAGE), result.exception
        rejection = json.loads(result.stdout)["error"]
        assert rejection["code"] == "INVALID_REQUEST"
        assert "give" in rejection["message"] or "use" in rejection["message"]


@pytest.mark.parametrize("option", ["--linger-ms", "--batch-bytes", "--partition"])
@pytest.mark.parametrize("stated", ["9" * 400, "-1", "nan"])
def test_a_number_out_of_range_for_producers_is_rejected(option: str, stated: str) -> None:
    result = run(["produce", "sea", f"{option}={stated}"])
    assert result.exit_code == ExitStatus.USAGE
    assert option in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "sea", "--timeout=2"],
        ["operations", "list"],
        ["operations", "list", "--timeout", "1m30s"],
        ["topics", "delete", "sea", "--yes", "--timeout", "5m"],
        ["explain", "--timeout", "500ms"],
    ],
)
def test_a_valid_timeout_is_accepted(words: list[str]) -> None:
    assert run(words).exit_code == ExitStatus.UNREACHABLE
