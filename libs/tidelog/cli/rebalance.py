"""`tidelog rebalance`: spreads replicas and leaders evenly with as few moves as possible."""

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
    """Spread all partitions evenly, with as few moves as possible.

    The numbers of replicas, and of preferred leaders, of any two current brokers differ by at most
    one afterwards. Replicas of a partition are in different racks while there are enough racks.
    Shows the plan and asks for confirmation. Partitions stay available while they move. The
    throttle bounds the moves, operations cancel stops them, and operations reverse undoes them.

    A plan can be saved, and run later exactly as shown: reassign --file takes the output of
    --dry-run --json.
    """
    session = session_of(context, bootstrap, as_json)
    manner = Manner(dry_run, yes, operation_id, requested_by, timeout, expected_plan)
    wish = Wish(lambda admin: admin.rebalance, "partitions of all topics would be moved")
    session.run(lambda: run_operation(session, manner, wish, follow=watch))
