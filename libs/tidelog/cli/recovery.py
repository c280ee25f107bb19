"""`tidelog recovery`: describes partitions without a leader, and elects chosen replicas."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.completion import leaders_argument, partitions_argument
from tidelog.cli.exit_status import EPILOG, ExitStatus, UsageError, status_of_results
from tidelog.cli.operating.beginning import traced_change
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.operating.consent import (
    check_can_confirm,
    confirms_by_name,
    declined,
    notes_on_terminal,
)
from tidelog.cli.operating.documents import Document, error_document
from tidelog.cli.operating.help_epilog import ERROR_FIELDS, help_epilog
from tidelog.cli.operating.recovery_view import MAX_DESCRIBE_MS, choice_text, recovery_lines
from tidelog.cli.operating.targets import parse_leaders, parse_selection
from tidelog.cli.output import write_error, write_json, write_line, write_note
from tidelog.cli.session import Session
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER

if TYPE_CHECKING:
    from tidelog.admin_messages import RecoveredPartition, Recovery, RecoveryChoice
    from tidelog.client import Admin

app = typer.Typer(
    no_args_is_help=True,
    epilog=EPILOG,
    help="Elect leaders for partitions that lost all in-sync replicas.",
)

_RECOVERY = (
    "topic, topic_id, partition, revision, last_known (ids of brokers), waits_for, survivors "
    "[broker_id, described, problem, last_epoch (-1: an empty log), log_start_offset, "
    "log_end_offset, high_watermark (null: not reported), whole (it is intact), lost_records "
    "(null: not known)]"
)


@app.command(
    epilog=help_epilog(
        "tidelog recovery describe",
        "tidelog recovery describe sea/3 --json",
        json=f"a list; of each: {_RECOVERY}.",
    )
)
@shared_options("timeout_seconds")
async def describe(
    session: Session,
    options: MutationOptions,
    targets: Annotated[
        list[str] | None,
        partitions_argument("Partitions to describe. Default: all without a leader."),
    ] = None,
) -> None:
    """Show what each choice of a leader would lose.

    Describes what the replicas of partitions without a leader hold. A partition has no leader while
    all replicas that are known to hold every committed record are away or have lost data. It gets a
    leader as soon as one of them is back. Choose a leader only if they are lost for good.
    """
    selection = parse_selection(targets or [])
    async with await options.admin(session) as admin:
        found: list[Recovery] = []
        for topic, numbers in (selection or {"": []}).items():
            found += await _query(admin, options, topic, numbers)
    if session.as_json:
        write_json([asdict(recovery) for recovery in found])
    elif not found:
        write_line("Every selected partition has a leader.")
    else:
        for recovery in found:
            for line in recovery_lines(recovery, on_terminal=sys.stdout.isatty()):
                write_line(line)
            write_line()
        first = found[0]
        write_note(
            "To elect a replica, whatever is lost by it: tidelog recovery choose "
            f"{first.topic}/{first.partition}=BROKER"
        )


@app.command(
    epilog=help_epilog(
        "tidelog recovery choose sea/3=2 --dry-run",
        "tidelog recovery choose sea/3=2",
        json=f"dry_run, topic, results [partition, {ERROR_FIELDS}] (empty in a dry run), "
        f"described [{_RECOVERY}], trace_id (null in a dry run).",
    )
)
@shared_options("dry_run", "yes", "requested_by", "timeout_seconds")
async def choose(
    session: Session,
    options: MutationOptions,
    leaders: Annotated[
        list[str], leaders_argument("The replica to elect; partitions of one topic.")
    ],
) -> ExitStatus:
    """Elect chosen replicas of partitions without a leader, whatever is lost.

    Records that the chosen replica does not hold are lost for good, even if they were acknowledged:
    the other replicas truncate them when they follow. The command shows the loss and asks for the
    topic's name. It is rejected if a partition has changed since it was shown. To elect the best
    surviving replica instead, use topics recover.
    """
    from tidelog.admin_messages import RecoveredPartition, RecoveryChoice

    topic, chosen = _of_one_topic(leaders)
    async with await options.admin(session) as admin:
        # An invalid choice is rejected before the command asks for consent.
        unchecked = [RecoveryChoice(*choice) for choice in sorted(chosen.items())]
        found = await _query(admin, options, topic, sorted(chosen), unchecked)
        check_can_confirm(session, options, f"records of topic {topic!r} may be lost for good")
        described = {recovery.partition: recovery for recovery in found}
        if options.dry_run:
            _show_choice(session, topic, chosen, described)
            return ExitStatus.DONE
        led = sorted(chosen.keys() - described.keys())
        if led:
            await _check_leaders(admin, topic, led, chosen)
        lines = list(_choice_lines(chosen, described, on_terminal=notes_on_terminal()))
        if described and not options.yes and not confirms_by_name(lines, topic):
            return declined(session, "Nothing was elected.")
        choices = [
            RecoveryChoice(number, broker_id, described[number].revision)
            for number, broker_id in sorted(chosen.items())
            if number in described
        ]
        results = [RecoveredPartition(number, None) for number in led]
        with traced_change(admin) as trace_id:
            if choices:
                results += await admin.recover_partitions(
                    topic, timeout_ms=options.timeout_ms, choices=choices
                )
    document = _choice_document(topic, described) | {
        "results": [{"partition": r.partition, "error": error_document(r.error)} for r in results],
        "trace_id": trace_id,
    }
    return _report_results(session, topic, chosen, results, document)


def _of_one_topic(words: Sequence[str]) -> tuple[str, dict[int, int]]:
    """Returns the topic and the chosen leaders by partition. Raises `UsageError`."""
    leaders = parse_leaders(words)
    topics = sorted({name.topic for name in leaders})
    if len(topics) > 1:
        raise UsageError(
            f"partitions of {len(topics)} topics are named ({', '.join(topics)}); choose for one "
            "topic at a time, since you confirm by its name"
        )
    return topics[0], {name.partition: leader for name, leader in leaders.items()}


async def _query(
    admin: Admin,
    options: MutationOptions,
    topic: str,
    numbers: Sequence[int],
    choices: Sequence[RecoveryChoice] = (),
) -> list[Recovery]:
    timeout_ms = min(options.timeout_ms, MAX_DESCRIBE_MS)
    return await admin.describe_recovery(topic, numbers, timeout_ms, choices=choices)


async def _check_leaders(
    admin: Admin, topic: str, led: Sequence[int], chosen: Mapping[int, int]
) -> None:
    """Checks chosen partitions that need no recovery. Raises `TidelogError`.

    It is no error if the chosen leader leads already, by an earlier choice for example. A choice
    without a revision would apply to whatever state the partition has at its election, which the
    user has not seen.
    """
    (details,) = await admin.topic_details([topic])
    leaders = {partition.partition: partition.leader for partition in details.partitions}
    for number in led:
        leader = leaders.get(number, NO_LEADER)
        if leader != chosen[number]:
            state = "has not been led yet" if leader == NO_LEADER else f"is led by broker {leader}"
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{topic}/{number} {state}: there is nothing to recover; leave it out",
            )


def _report_results(
    session: Session,
    topic: str,
    chosen: Mapping[int, int],
    results: Sequence[RecoveredPartition],
    document: Document,
) -> ExitStatus:
    if session.as_json:
        write_json(document)
    for result in results:
        if result.error is not None:
            write_error(str(result.error))
        elif not session.as_json:
            write_line(f"Broker {chosen[result.partition]} leads {topic}/{result.partition}.")
    return status_of_results(result.error for result in results)


def _choice_document(topic: str, described: Mapping[int, Recovery]) -> Document:
    return {
        "dry_run": False,
        "topic": topic,
        "results": [],
        "described": [asdict(recovery) for _, recovery in sorted(described.items())],
        "trace_id": None,
    }


def _show_choice(
    session: Session, topic: str, chosen: Mapping[int, int], described: Mapping[int, Recovery]
) -> None:
    if session.as_json:
        write_json(_choice_document(topic, described) | {"dry_run": True})
        return
    for line in _choice_lines(chosen, described, on_terminal=sys.stdout.isatty()):
        write_line(line)
    for number in sorted(chosen.keys() - described.keys()):
        write_line(f"{topic}/{number} has a leader: there is nothing to recover.")
    write_note("This is a dry run: nothing was elected.")


def _choice_lines(
    chosen: Mapping[int, int], described: Mapping[int, Recovery], *, on_terminal: bool
) -> Iterator[str]:
    for number, recovery in sorted(described.items()):
        yield from recovery_lines(recovery, on_terminal=on_terminal)
        yield choice_text(recovery, chosen[number])
        yield ""
