"""`tidelog rebalance`: spreads replicas and leaders evenly with as few moves as possible."""

from __future__ import annotations

from tidelog.cli.operating.beginning import OperationSpec, run_operation
from tidelog.cli.operating.options import MutationOptions, shared_options
from tidelog.cli.session import Session


@shared_options(
    "dry_run", "yes", "watch", "operation_id", "expected_plan", "requested_by", "timeout"
)
def rebalance(session: Session, options: MutationOptions) -> None:
    """Spread all partitions evenly, with as few moves as possible.

    The numbers of replicas, and of preferred leaders, of any two current brokers differ by at most
    one afterwards. Replicas of a partition are in different racks while there are enough racks.
    Shows the plan and asks for confirmation. Partitions stay available while they move. The
    throttle bounds the moves, operations cancel stops them, and operations reverse undoes them.

    A plan can be saved, and run later exactly as shown: reassign --file takes the output of
    --dry-run --json.
    """
    spec = OperationSpec(lambda admin: admin.rebalance, "partitions of all topics would be moved")
    session.run(lambda: run_operation(session, options, spec))
