"""Requests that must be rejected, each with its expected error. Their cost up to the rejection is
measured, too.

All other requests must be valid: the cost of a rejected request says nothing about a valid one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bench.pauses.run import REJECTED, Pause

# Requests that would need knowledge of the cluster to be valid. Valid ones of the same RPCs are in
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
# Commands for another incarnation of the broker, or from another controller: a valid one would
# change the cluster without its controller, which sends valid ones while `operations` runs.
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
    """Returns the requests that were rejected unexpectedly or for another reason, and those that
    were expected to be rejected and were not."""
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
