"""Every command quoted in runbooks, panels, HELP texts and documentation exists."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import typer.main
from typer.core import TyperGroup

from documented import pages
from tidelog.cli.__main__ import app
from tidelog.cli.exit_status import UsageError
from tidelog.cli.explain import parse_scope
from tidelog.cli.trace_files import split_targets
from tidelog.cli.trace_targets import parse_since, parse_target
from tidelog_runtime.telemetry.metrics.catalogue import CATALOGUE

ROOT = Path(__file__).parents[3]
QUOTED = re.compile(r"`(tidelog [^`]+)`")
TYPED = re.compile(r"^\$ (?:.*\| *)?(tidelog [^#\n]+)", re.MULTILINE)
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


def commands() -> dict[str, str]:
    """Each quoted command once, with the first place that quotes it."""
    found: dict[str, str] = {}
    for where, text in sources():
        for quoted in (*QUOTED.findall(text), *TYPED.findall(text)):
            command = " ".join(quoted.split())
            if command not in NAMED_ONLY:
                found.setdefault(command, where)
    return found


QUOTED_COMMANDS = commands()
# The parser raises these for unknown commands and options, and for invalid values too.
PARSER_ERROR = typer.BadParameter.__mro__[1]


def parse(command: str) -> None:
    """Parse a command as the command line would, without running it.

    Raises the parser's exceptions and `UsageError`.
    """
    # The shell handles redirections of the output.
    command = command.partition(" > ")[0]
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
        assert QUOTED.search(text) or TYPED.search(text), where
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
