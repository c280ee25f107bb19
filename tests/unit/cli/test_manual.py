"""Help texts match the commands: every example runs, and every field of --json is described."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest
import typer.main
from typer.core import TyperCommand, TyperGroup

from tidelog.admin_messages import (
    AcceptedOperation,
    BrokerDetails,
    BrokerShare,
    ConfigEntry,
    LeaderChange,
    Move,
    MoveProgress,
    Operation,
    Plan,
    Progress,
    Recovery,
    RestartCheck,
    RestartFinding,
    Survivor,
)
from tidelog.cli.__main__ import app
from tidelog.cli.operating.help_epilog import BEGUN_FIELDS, OPERATION_FIELDS
from tidelog.client.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ControllerDescription,
    PartitionDescription,
)
from unit.cli.test_quoted_commands import parse

EXAMPLE = re.compile(r"^ *(?:Example: (.+)|(tidelog .+))$", re.MULTILINE)
CHANGING = {
    "topics create",
    "topics alter-config",
    "topics add-partitions",
    "topics remove-partitions",
    "topics set-replication-factor",
    "topics delete",
    "topics recover",
    "brokers add",
    "brokers remove",
    "brokers maintenance",
    "leaders elect-preferred",
    "leaders move",
    "reassign",
    "rebalance",
    "throttle set",
    "operations cancel",
    "operations reverse",
    "recovery choose",
    "apply",
}


# These read files, print the whole past, or copy all records; a backup is continued.
BACKUPS = {f"backup {name}" for name in ("create", "restore", "show", "verify")}
CONTEXTS = {f"context {name}" for name in ("add", "list", "remove", "show", "use")}
WITHOUT_A_TIME = {"check-history", "dump-log", "trace"} | BACKUPS | CONTEXTS
# Commands that are hard to revert, or that copy data.
CONFIRMED = CHANGING - {
    "topics create",
    "brokers maintenance",
    "leaders elect-preferred",
    "leaders move",
    "throttle set",
}


def walk(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from walk(command, (*path, name))
        elif isinstance(command, TyperCommand):
            yield " ".join((*path, name)), command


def commands() -> dict[str, TyperCommand]:
    found = typer.main.get_command(app)
    assert isinstance(found, TyperGroup)
    return dict(walk(found))


COMMANDS = commands()


def manual_of(command: TyperCommand) -> str:
    return f"{command.help}\n{command.epilog}"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_has_examples_that_parse(name: str) -> None:
    examples = ["".join(found) for found in EXAMPLE.findall(manual_of(COMMANDS[name]))]
    assert any(f"tidelog {name}" in example for example in examples)
    for example in examples:
        for part in re.split(r" \| | && ", example):
            if part.startswith("tidelog "):
                parse(part.partition(" > ")[0].replace("run.history", __file__))


@pytest.mark.parametrize("name", sorted(CHANGING))
def test_every_change_has_a_dry_run_and_carries_the_caller(name: str) -> None:
    options = {option for param in COMMANDS[name].params for option in param.opts}
    assert {"--dry-run", "--requested-by", "--timeout", "--json", "--bootstrap"} <= options


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT_A_TIME))
def test_every_request_to_the_cluster_has_a_timeout(name: str) -> None:
    options = {option for param in COMMANDS[name].params for option in param.opts}
    assert {"--timeout", "--json", "--bootstrap"} <= options


@pytest.mark.parametrize("name", sorted(CONFIRMED))
def test_every_confirmation_can_be_skipped(name: str) -> None:
    assert any("--yes" in param.opts for param in COMMANDS[name].params)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_lists_exit_statuses(name: str) -> None:
    assert "Exit status:" in manual_of(COMMANDS[name])


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_unwrapped_help_lines_fit_a_terminal(name: str) -> None:
    for kept in manual_of(COMMANDS[name]).split("\b\n")[1:]:
        for line in kept.split("\n\n")[0].splitlines():
            assert len(line) <= 78, f"with an indent of two it is wider than 80: {line}"


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("rebalance", [AcceptedOperation, Plan, BrokerShare, Move, Operation, Progress]),
        ("operations list", [Operation, Progress]),
        ("operations moves", [MoveProgress, Move]),
        ("brokers list", [BrokerDetails]),
        ("brokers check-restart", [RestartCheck, RestartFinding]),
        ("leaders move", [LeaderChange]),
        ("recovery describe", [Recovery, Survivor]),
        ("topics config", [ConfigEntry]),
        ("topics describe", [PartitionDescription]),
        ("cluster describe", [ClusterDescription, ControllerDescription, BrokerDescription]),
    ],
)
def test_help_names_every_field_of_its_json(name: str, shapes: list[type]) -> None:
    words = set(re.findall(r"\w+", manual_of(COMMANDS[name])))
    for shape in shapes:
        assert {field.name for field in dataclasses.fields(shape)} <= words


def test_operation_fields_are_described_uniformly() -> None:
    assert OPERATION_FIELDS in BEGUN_FIELDS[1]
