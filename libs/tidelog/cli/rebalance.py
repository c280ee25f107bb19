"""`tidelog rebalance`: replicas and leaders spread evenly, by the least that has to move."""

from __future__ import annotations

import typer

from tidelog.cli.operating.beginning import Wish, run_operation
from tidelog.cli.operating.manner import (
    USUAL_TIMEOUT_SECONDS,
    DryRunOption,
    ExpectedPlanOption,
    Manner,
    OperationIdOption,
    RequestedByOption,
    TimeoutOption,
    WatchOption,
    YesOption,
)
from tidelog.cli.session import BootstrapOption, JsonOption, session_of


def rebalance(
    context: typer.Context,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    watch: WatchOption = False,
    operation_id: OperationIdOption = "",
    expected_plan: ExpectedPlanOption = None,
    requested_by: RequestedByOption = None,
    timeout: TimeoutOption = USUAL_TIMEOUT_SECONDS,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Spread all partitions evenly, by the least movement.

    Replicas and preferred leaders of the present brokers get within one of each other, and
    replicas of a partition lie in different racks while there are enough. It shows its plan and
    asks; partitions serve on while they move. What is moved may be bounded by the throttle,
    stopped by operations cancel, and taken back by operations reverse.

    A plan may be kept, and run later exactly as it was shown: reassign --file takes what
    --dry-run --json prints.
    """
    session = session_of(context, bootstrap, as_json)
    manner = Manner(dry_run, yes, operation_id, requested_by, timeout, expected_plan)
    wish = Wish(lambda admin: admin.rebalance, "partitions of all topics would be moved")
    session.run(lambda: run_operation(session, manner, wish, follow=watch))
