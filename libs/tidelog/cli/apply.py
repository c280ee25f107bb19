"""`tidelog apply`: makes topics as files declare them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.applying.apply_plan import ApplyPlan, make_plan
from tidelog.cli.applying.carrying_out import Carried, carry_out
from tidelog.cli.applying.declarations import DeclaredTopic
from tidelog.cli.applying.plan_report import plan_document, plan_lines
from tidelog.cli.applying.topic_requests import TopicChanger
from tidelog.cli.applying.topics_file import read_topics
from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.operating.beginning import note_pending, traced_change
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.operating.consent import (
    check_can_confirm,
    confirms,
    confirms_by_digest,
    declined,
    notes_on_terminal,
)
from tidelog.cli.operating.help_epilog import help_epilog
from tidelog.cli.operating.watching import SilentView, View, opened_view, watch
from tidelog.cli.output import write_json, write_line, write_note
from tidelog.cli.session import Session, seconds_option
from tidelog.errors import ErrorCode, TidelogError
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.client import Admin

# A plan waits for operations of others, and the next one may have begun meanwhile.
MAX_PLANS = 10
DEFAULT_OPERATION_SECONDS = 86_400.0

APPLY_EPILOG = help_epilog(
    "tidelog apply -f topics.yaml --dry-run",
    "tidelog apply -f topics.yaml --yes",
    "tidelog apply -f topics.yaml --prune --yes --expected-plan DIGEST",
    json=(
        "dry_run, differs, digest, changes [action (create, change, delete), topic, topic_id "
        "(null: to create), differences [field (topic, partitions, replication_factor, or a "
        "configuration key), before, after (null: none)]], waits_for (ids of running operations), "
        "risks, warnings, operations (ids of those that were begun), pending_brokers (have not "
        "acknowledged a change yet), trace_id (null in a dry run).",
    ),
)


@shared_options("dry_run", "yes", "expected_plan", "requested_by", "timeout_seconds")
async def apply(
    session: Session,
    options: MutationOptions,
    files: Annotated[
        list[str],
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="YAML or JSON file of topics; - for the standard input; may be repeated.",
        ),
    ],
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete topics that no file declares, with their records."),
    ] = False,
    operation_seconds: Annotated[
        float,
        seconds_option(
            "--operation-timeout",
            "How long to follow each operation; it continues afterwards.",
            default=DEFAULT_OPERATION_SECONDS,
        ),
    ] = DEFAULT_OPERATION_SECONDS,
) -> ExitStatus:
    """Make topics as files declare them: partitions, replication factor and configuration.

    A file is a mapping `topics:` of names. A field that a topic leaves out is not changed; a
    configuration key that `config` leaves out is reset to its default. Shows the plan. Asks for
    confirmation if records may be lost, keys would move to other partitions, or replicas would be
    copied. Waits until all is as declared. If it is interrupted, the same command does the rest.

    With --dry-run, exit status 3 means that the cluster differs from the files, and 0 that it does
    not.
    """
    declared = read_topics(files)
    async with await options.admin(session) as admin:
        changer = TopicChanger(admin, options.timeout_ms)
        plan = await make_plan(changer, declared, prune=prune)
        if not options.dry_run:
            plan = await _until_idle(session, changer, plan, declared, operation_seconds, prune)
        if plan.changes and options.expected_plan not in (None, plan.digest):
            raise TidelogError(
                ErrorCode.REVISION_CONFLICT,
                f"the plan has the digest {plan.digest}, not {options.expected_plan}: files or "
                "topics have changed since; show the plan with --dry-run",
            )
        if options.dry_run or not plan.differs:
            _show(session, options, plan)
            return ExitStatus.DRIFT if plan.differs else ExitStatus.DONE
        if plan.needs_consent:
            count = plural(len(plan.changes), "topic")
            check_can_confirm(session, options, f"{count} would be changed")
        if not _is_agreed(options, plan):
            return declined(session, "Nothing was changed.")
        return await _carry_out(session, options, admin, plan, operation_seconds)


async def _until_idle(
    session: Session,
    changer: TopicChanger,
    plan: ApplyPlan,
    declared: Sequence[DeclaredTopic],
    operation_seconds: float,
    prune: bool,
) -> ApplyPlan:
    """Returns the plan once no operation moves partitions of the topics."""
    for _ in range(MAX_PLANS):
        if not plan.waits_for:
            return plan
        with _view(session) as view:
            for operation in plan.waits_for:
                operation_id = operation.operation_id
                await watch(changer.admin, operation_id, view, timeout_seconds=operation_seconds)
        plan = await make_plan(changer, declared, prune=prune)
    raise UsageError(
        f"operations that move partitions of these topics have begun {MAX_PLANS} times; apply "
        "when no others are begun. They are listed by: tidelog operations list"
    )


def _view(session: Session) -> AbstractContextManager[View]:
    return opened_view(SilentView() if session.as_json else None)


def _is_agreed(options: MutationOptions, plan: ApplyPlan) -> bool:
    if options.yes or not plan.needs_consent:
        return True
    shown = plan_lines(plan, on_terminal=notes_on_terminal())
    if plan.deletes_records:
        return confirms_by_digest(shown, plan.digest)
    return confirms(shown)


async def _carry_out(
    session: Session,
    options: MutationOptions,
    admin: Admin,
    plan: ApplyPlan,
    operation_seconds: float,
) -> ExitStatus:
    changer = TopicChanger(admin, options.timeout_ms)
    with _view(session) as view, traced_change(admin) as trace_id:
        carried = await carry_out(changer, plan, view, timeout_seconds=operation_seconds)
    _show(session, options, plan, carried, trace_id)
    note_pending(sorted(carried.pending), "acknowledged every change")
    return carried.status


def _show(
    session: Session,
    options: MutationOptions,
    plan: ApplyPlan,
    carried: Carried | None = None,
    trace_id: str | None = None,
) -> None:
    if session.as_json:
        done: dict[str, Any] = {
            "operations": carried.operations if carried else [],
            "pending_brokers": sorted(carried.pending) if carried else [],
            "trace_id": trace_id,
        }
        write_json({"dry_run": options.dry_run} | plan_document(plan) | done)
        return
    if not plan.differs:
        write_line("Every topic is as declared.")
        return
    for line in plan_lines(plan, on_terminal=sys.stdout.isatty()):
        write_line(line)
    if options.dry_run:
        write_note("This is a dry run: nothing was changed.")
        write_note(f"To carry out this plan and no other: --expected-plan {plan.digest}")
    elif carried is not None and carried.status is ExitStatus.DONE:
        write_line("Every topic is as declared now.")
