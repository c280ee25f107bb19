"""Requests that must be rejected, each with its expected error; their cost up to the rejection is
measured, too.

All other requests must be valid: one that is rejected costs too little, and is not what was to be
measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bench.pauses.run import REJECTED, Pause

# For requests that need knowledge of the cluster to be valid. Valid ones of the same RPCs are in
# `requests.EXPENSIVE` and in `operations`.
_GENERATED: Mapping[str, tuple[str, ...]] = {
    "CORRUPT_BATCH": ("Produce",),
    "UNKNOWN_LEADER_EPOCH": ("Fetch",),
    "TOPIC_ALREADY_EXISTS": ("CreateTopic",),
    "UNKNOWN_TOPIC_ID": (
        *("DeleteTopic", "AlterTopicConfig", "AddPartitions", "RemovePartitions", "Reassign"),
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": ("DescribeRecovery", "RecoverPartitions"),
    "REVISION_CONFLICT": ("Rebalance",),
    "INVALID_REQUEST": (
        *("AddBrokers", "RemoveBrokers", "SetReplicationFactor", "SetThrottle"),
        *("MoveLeaders", "SetMaintenance"),
    ),
    "UNKNOWN_OPERATION": ("DescribeOperation", "CancelOperation", "ReverseOperation"),
}
# For another incarnation of the broker, or another controller: a valid one would change the cluster
# without its controller. The controller sends valid ones while `operations` runs.
_FENCED = ("LeaderAndIsr", "StopReplica", "DescribeReplicas")
_HOSTILE = (
    "Produce: 40 million empty records",
    "Produce: 40 million lengths of one record",
    "Produce: 8 gzip frames that understate 64 MiB",
)

EXPECTED: Mapping[str, str] = {
    **{
        f"{rpc}: largest": f"ERROR_CODE_{code}" for code, rpcs in _GENERATED.items() for rpc in rpcs
    },
    **{f"{rpc}: largest": "ERROR_CODE_STALE_BROKER_EPOCH" for rpc in _FENCED},
    **{f"{rpc}: most entries, all empty": "ERROR_CODE_STALE_CONTROLLER_EPOCH" for rpc in _FENCED},
    "Watch: largest": "FAILED_PRECONDITION",
    "Watch: most entries, all empty": "FAILED_PRECONDITION",
    "AnnounceGateway: most entries, all empty": "ERROR_CODE_INVALID_REQUEST",
    "Health.Check: longest name": "NOT_FOUND",
    **dict.fromkeys(_HOSTILE, "ERROR_CODE_INVALID_BATCH"),
}


def unexpected(pauses: Iterable[Pause]) -> list[str]:
    """The requests that were rejected and meant to be valid, were rejected for another reason, or
    were not rejected as expected."""
    wrong = []
    for pause in pauses:
        expected = EXPECTED.get(pause.case)
        is_as_expected = (
            not pause.answer.startswith(REJECTED)
            if expected is None
            else pause.answer.startswith(f"{REJECTED}{expected}")
        )
        if not is_as_expected:
            wrong.append(f"{pause.service} {pause.case}: {pause.answer}")
    return wrong
