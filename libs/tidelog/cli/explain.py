"""`tidelog explain`: reports current problems, their causes, and the next steps."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.completion import complete_topic
from tidelog.cli.connection import check_any_listens, no_service_answers
from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.operating.command_options import shared_options
from tidelog.cli.output import terminal_width, write_json, write_line
from tidelog.cli.session import Session, unbounded_seconds_option
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import LEAST_ANSWER_MS
from tidelog.model import MAX_INT32
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.inspection.state_reports import Explanation, Finding, Scope

MAX_TIMEOUT_SECONDS = 60.0
DEFAULT_TIMEOUT_SECONDS = 2.0
# Severities that count as faults; `info` does not.
_FAULTS = ("critical", "warning")
_WIDTH = 100
_INDENT = "    "
# The word before a broker's id.
_BROKER = "broker"


@shared_options()
async def explain(
    session: Session,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC[/PARTITION]] [broker ID]",
            help="What to explain. Default: the whole cluster. broker ID is the same as "
            "--broker ID.",
            show_default=False,
            autocompletion=complete_topic,
        ),
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker",
            metavar="ID",
            min=0,
            max=MAX_INT32,
            show_default=False,
            help="Only what concerns this broker.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        unbounded_seconds_option(
            "--timeout",
            f"Time in which services have to answer, {LEAST_ANSWER_MS} ms to "
            f"{MAX_TIMEOUT_SECONDS:g} s; a healthy one may need the minimum.",
            DEFAULT_TIMEOUT_SECONDS,
        ),
    ] = DEFAULT_TIMEOUT_SECONDS,
) -> ExitStatus:
    """Report current problems, their causes and the next steps. Exit status 0: there are none.

    Queries all services, and names those that do not answer. It works without a controller, without
    etcd, and with any single service that is left. --bootstrap may name controllers, too.

    Example: tidelog explain sea/3

    Example: tidelog explain broker 2
    """
    scope = parse_scope(targets or [], broker)
    explained = await _explained(session, scope, answer_time_ms(timeout))
    if session.as_json:
        write_json(document(explained))
    else:
        for line in lines(explained, scope, terminal_width(_WIDTH)):
            write_line(line)
    return ExitStatus.DONE if is_well(explained) else ExitStatus.FAILED


def answer_time_ms(timeout_seconds: float) -> int:
    """Raises `UsageError` if the time is out of range or not a number.

    >>> answer_time_ms(2.5)
    2500
    """
    least_seconds = LEAST_ANSWER_MS / 1000
    if not least_seconds <= timeout_seconds <= MAX_TIMEOUT_SECONDS:
        why = (
            f"in less than {least_seconds:g} s a healthy service could not answer; "
            if timeout_seconds < least_seconds
            else ""
        )
        raise UsageError(
            f"--timeout {timeout_seconds:g}: {why}give {least_seconds:g} to {MAX_TIMEOUT_SECONDS:g}"
        )
    return round(timeout_seconds * 1000)


def parse_scope(targets: Sequence[str], broker: int | None = None) -> Scope:
    """Parses TOPIC, TOPIC/P, broker N, or a topic followed by a broker. A single word "broker"
    means a topic of that name. Raises `UsageError`.

    >>> parse_scope(["sea/3", "broker", "2"])
    Scope(topic='sea', partition=3, broker=2)
    """
    from tidelog.cli.trace_targets import parse_number, parse_target
    from tidelog.inspection.state_reports import Scope

    named = list(targets)
    if named[-2:-1] == [_BROKER]:
        number = named.pop()
        named.pop()
        if not (number.isascii() and number.isdecimal()):
            raise UsageError(f"broker {number!r} is not a broker id; give a number, as: broker 2")
        named_broker = parse_number(number, "broker")
        if broker not in (None, named_broker):
            raise UsageError(f"broker {number} and --broker {broker}: give one of them")
        broker = named_broker
    if len(named) > 1:
        raise UsageError(
            f"{' '.join(targets)}: give one TOPIC or TOPIC/PARTITION, and after it a broker, as: "
            "sea/3 broker 2"
        )
    if not named:
        return Scope(broker=broker)
    topic, partition, _ = parse_target(named[0])
    return Scope(topic, partition, broker)


async def _explained(session: Session, scope: Scope, timeout_ms: int) -> Explanation:
    from tidelog.client.cluster_explainer import NoServiceAnswersError
    from tidelog.client.explain_requests import explain_cluster
    from tidelog.inspection.explain import Listening

    try:
        return await explain_cluster(
            session.service_addresses(), scope, timeout_ms, known=session.known_services()
        )
    except TidelogError as error:
        if error.code is ErrorCode.INVALID_REQUEST:
            raise UsageError(error.message) from error
        raise
    except NoServiceAnswersError as error:
        await check_any_listens(session.found_bootstrap(), only_foreign=True)
        paused = any(service.listening is Listening.ACCEPTS for service in error.silent)
        raise no_service_answers(error.reason, paused=paused) from error


def is_well(explained: Explanation) -> bool:
    return not any(finding.severity in _FAULTS for finding in explained.findings)


def document(explained: Explanation) -> dict[str, object]:
    return {"well": is_well(explained)} | asdict(explained)


def lines(explained: Explanation, scope: Scope, width: int = _WIDTH) -> Iterator[str]:
    """Yields text for people: for each finding a headline, its evidence, what it follows from, and
    the next step. Lines are wrapped at words to `width`."""
    for finding in explained.findings:
        yield from _finding_lines(finding, width)
        yield ""
    yield from _wrapped(_verdict(explained, scope), width)
    if explained.silent:
        yield from _wrapped(f"No answer from {', '.join(explained.silent)}.", width)


def _finding_lines(finding: Finding, width: int) -> Iterator[str]:
    headline = f"{finding.severity.upper()} {finding.cause}: {finding.summary}"
    yield from _wrapped(headline, width, hanging=2)
    for line in finding.evidence:
        yield from _wrapped(line, width, f"{_INDENT}- ")
    if finding.because:
        yield from _wrapped(f"follows from {', '.join(finding.because)}", width, f"{_INDENT}<- ")
    if finding.next_step:
        yield from _wrapped(finding.next_step, width, f"{_INDENT}-> ")


def _verdict(explained: Explanation, scope: Scope) -> str:
    answered = len(explained.asked) - len(explained.silent)
    source = f"according to {plural(answered, 'service')}"
    if not answered:
        source = "and no service reported the state of the cluster in time"
    counts = [
        (severity, sum(f.severity == severity for f in explained.findings)) for severity in _FAULTS
    ]
    wrong = [f"{count} {severity}" for severity, count in counts if count]
    if wrong:
        findings = "finding" if sum(count for _, count in counts) == 1 else "findings"
        return f"{' and '.join(wrong)} {findings}, {source}."
    return f"All is well with {_subject(scope)}, {source}."


def _subject(scope: Scope) -> str:
    named = []
    if scope.topic:
        partition = "" if scope.partition is None else f"/{scope.partition}"
        named.append(f"{scope.topic}{partition}")
    if scope.broker is not None:
        named.append(f"broker {scope.broker}")
    return " on ".join(named) or "the cluster"


def _wrapped(text: str, width: int, first: str = "", hanging: int | None = None) -> list[str]:
    indent = " " * (len(first) if hanging is None else hanging)
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
