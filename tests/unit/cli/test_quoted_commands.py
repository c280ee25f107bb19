"""Every command quoted in runbooks, panels, HELP texts and documentation exists, and so does every
command in a block of the documentation: of `tidelog`, of the services and jobs, and of make."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import typer
import typer.main
from typer.core import TyperGroup

from documented import pages, shown_lines
from tidelog.cli.__main__ import app
from tidelog.cli.exit_status import UsageError
from tidelog.cli.explain import parse_scope
from tidelog.cli.trace_files import split_targets
from tidelog.cli.trace_targets import parse_since, parse_target
from tidelog_broker.broker_config import BrokerConfig
from tidelog_pipeline.check.check_config import CheckConfig
from tidelog_pipeline.state_changes.state_changes_config import StateChangesConfig
from tidelog_runtime.config import ProgramConfig, load
from tidelog_runtime.telemetry.metrics.catalogue import CATALOGUE

ROOT = Path(__file__).parents[3]
MAKEFILE = ROOT / "Makefile"
QUOTED = re.compile(r"`(tidelog [^`]+)`")
# What separates commands of a line.
SEPARATORS = "|&;<>"
REDIRECTION = ">"
# Also in containers.
TIDELOG = (["tidelog"], ["docker-compose", "run", "--rm", "tools"])
SHELL = ["sh", "-c"]
PYTHON = ["python", "-m"]
SAMPLES = (
    (r"\{\{.*?\}\}", "2"),
    (r"[\[\]]", ""),
    (r"TOPIC/P(ARTITION)?\b", "sea/0"),
    (r"\b(TOPIC|NAME)\b|…", "sea"),
    (r"\bN\b", "2"),
    (r"\bFILE\b|\S*\*\S*", __file__),
)
# Mentions of commands that are not meant to be typed; parsing these options would run them.
NAMED_ONLY = {
    "tidelog backup",
    "tidelog backup show",
    "tidelog topics describe",
    "tidelog apply",
    "tidelog --help",
    "tidelog --version",
    "tidelog COMMAND --help",
    "tidelog --install-completion",
}


def descriptions(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "description" and isinstance(item, str):
                yield item
            yield from descriptions(item)
    elif isinstance(value, list):
        for item in value:
            yield from descriptions(item)


def sources() -> Iterator[tuple[str, str]]:
    """Texts for people, by place."""
    yield "alerts", (ROOT / "deploy/prometheus/alerts.yml").read_text()
    yield "documentation", "\n".join(page.read_text() for page in pages())
    for dashboard in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json")):
        text = json.loads(dashboard.read_text())
        yield dashboard.stem, "\n".join(descriptions(text))
    for service in sorted(CATALOGUE):
        metrics = CATALOGUE[service]
        yield f"HELP of {service}", "\n".join(metric.remedy for metric in metrics)


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line, without comments and the files of redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=SEPARATORS)
    lexer.whitespace_split = True
    words: list[str] = []
    is_file = False
    for word in lexer:
        if set(word) <= set(SEPARATORS):
            is_file = REDIRECTION in word
            if not is_file:
                yield words
                words = []
        elif not is_file:
            words.append(word)
    yield words


def commands_of(line: str) -> Iterator[str]:
    """The commands `tidelog` in a line of a shell, also in pipes, containers and inner shells."""
    for words in simple_commands(line):
        for beginning in TIDELOG:
            if words[: len(beginning)] == beginning:
                yield shlex.join(["tidelog", *words[len(beginning) :]])
        for at in range(len(words) - 2):
            if words[at : at + 2] == SHELL:
                yield from commands_of(words[at + 2])


def shown(word: str) -> list[str]:
    """The lines in blocks of the documentation that have this word."""
    lines = [line for page in pages() for line in shown_lines(page.read_text())]
    return [line for line in lines if re.search(rf"\b{word}(?: |$)", line)]


def commands() -> dict[str, str]:
    """Each quoted command once, with the first place that quotes it."""
    found: dict[str, str] = {}
    for where, text in sources():
        for quoted in QUOTED.findall(text):
            command = " ".join(quoted.split())
            if command not in NAMED_ONLY:
                found.setdefault(command, where)
    for line in [*shown("tidelog"), *shown("tools")]:
        for command in commands_of(line):
            found.setdefault(command, "block")
    return found


QUOTED_COMMANDS = commands()
# The parser raises these for unknown commands and options, and for invalid values too.
PARSER_ERROR = typer.BadParameter.__mro__[1]


def parse(command: str) -> None:
    """Parse a command as the command line would, without running it.

    Raises the parser's exceptions and `UsageError`.
    """
    for placeholder, sample in SAMPLES:
        command = re.sub(placeholder, sample, command)
    name, *arguments = shlex.split(command)
    parsed = typer.main.get_command(app)
    context = parsed.make_context(name, arguments)
    while isinstance(parsed, TyperGroup):
        rest = [*context._protected_args, *context.args]
        word, found, rest = parsed.resolve_command(context, rest)
        assert word is not None
        assert found is not None
        parsed, context = found, found.make_context(word, rest, parent=context)
    _parse_targets(parsed.name or "", context.params)


def _parse_targets(name: str, given: dict[str, object]) -> None:
    """Parse the arguments that commands parse themselves."""
    targets = given.get("targets")
    words = list(targets) if isinstance(targets, list | tuple) else []
    if name == "explain":
        broker = given["broker"]
        parse_scope(words, broker if isinstance(broker, int) else None)
    elif name == "trace" and given["files"]:
        split_targets(words)
    elif name == "trace":
        for word in words:
            parse_target(word)
        if given["since"]:
            parse_since(str(given["since"]), now_ms=0)


def test_commands_are_found_in_every_kind_of_source() -> None:
    for where, text in sources():
        assert QUOTED.search(text), where
    assert "tidelog explain broker {{ $labels.broker }}" in QUOTED_COMMANDS


@pytest.mark.parametrize("command", sorted(QUOTED_COMMANDS))
def test_every_quoted_command_parses(command: str) -> None:
    parse(command)


@pytest.mark.parametrize(
    "command", ["tidelog explian", "tidelog explain sea broker", "tidelog trace --sinc 5m sea/0"]
)
def test_an_invalid_command_would_be_found(command: str) -> None:
    with pytest.raises((PARSER_ERROR, UsageError)):
        parse(command)


def test_commands_of_a_line_are_found_wherever_they_are() -> None:
    line = "printf 'a|b' | tidelog produce sea > out.txt && sh -c 'tidelog dump-log sea-0.*'  # c"
    assert list(commands_of(line)) == ["tidelog produce sea", "tidelog dump-log 'sea-0.*'"]
    assert list(commands_of("docker-compose run --rm tools topics list")) == ["tidelog topics list"]
    assert list(commands_of("helm upgrade tidelog deploy/helm/tidelog")) == []


@pytest.mark.parametrize(
    "command",
    [
        "tidelog brokers check-restart 3",
        "tidelog backup restore /backups/monday --bootstrap new-cluster:7501",
        "tidelog dump-log '/var/lib/tidelog/replicas/sea-0.*'",
        "tidelog topics list",
    ],
)
def test_commands_are_found_in_blocks(command: str) -> None:
    assert command in QUOTED_COMMANDS


# The settings of programs that run until they are stopped, or on Spark.
PROGRAMS: dict[str, type[ProgramConfig]] = {
    "tidelog_broker": BrokerConfig,
    "tidelog_pipeline check": CheckConfig,
    "tidelog_pipeline state-changes": StateChangesConfig,
}


def check_settings(words: list[str]) -> None:
    """`words`: behind `python -m`. Raises `SystemExit` for an invalid setting."""
    for program, config in PROGRAMS.items():
        beginning = program.split()
        if words[: len(beginning)] == beginning:
            load(config, words[len(beginning) :])


def test_settings_of_programs_in_blocks_are_valid() -> None:
    lines = [words for line in shown("python") for words in simple_commands(line)]
    found = [words[2:] for words in lines if words[:2] == PYTHON]
    given = [" ".join(words) for words in found]
    assert all(any(one.startswith(program) for one in given) for program in PROGRAMS)
    for words in found:
        check_settings(words)


def test_an_invalid_setting_would_be_found() -> None:
    with pytest.raises(SystemExit):
        check_settings(["tidelog_broker", "--broker-id", "4", "--data", "/data/4"])


PHONY = re.compile(r"^\.PHONY: (help(?: |[\w-]|\\\n\t)+)$", re.MULTILINE)


def missing_targets(lines: Iterable[str]) -> set[str]:
    """The targets of `make` in these lines that the Makefile does not have."""
    (phony,) = PHONY.findall(MAKEFILE.read_text())
    targets = {
        word
        for line in lines
        for words in simple_commands(line)
        if words[:1] == ["make"]
        for word in words[1:]
        if "=" not in word
    }
    return targets - set(re.findall(r"[\w-]+", phony))


def test_targets_of_make_in_blocks_exist() -> None:
    assert len(shown("make")) >= 10
    assert missing_targets(shown("make")) == set()
    assert missing_targets(["make tests && make sim SEEDS=1"]) == {"tests"}
