"""The test files that take longest.

They run first, so that no process waits at the end of a suite for another one that has begun a long
file late."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# The files of each suite that take about half a minute or more, the longest first.
LONGEST = (
    "integration/test_explain_incidents.py",
    "integration/test_operating_commands.py",
    "integration/test_explain_store.py",
    "integration/test_explain_disks.py",
    "integration/test_rejected_starts.py",
    "monitoring/test_live_cluster.py",
    "integration/test_explain_brokers.py",
    "integration/test_explain_replicas.py",
    "integration/test_gateway.py",
    "integration/test_explain_machines.py",
    "integration/test_distributions.py",
    "integration/test_failover.py",
    "integration/test_explain_busy.py",
    "integration/test_explain_replication.py",
    "integration/test_explain_moves.py",
    "integration/test_explain_controllers.py",
    "integration/test_full_disk.py",
    "integration/test_rolling_restart.py",
    "integration/test_pauses.py",
    "api_fuzz/test_api.py",
    "spark/test_kills.py",
    "spark/test_stream_reading.py",
    "spark/test_query_metrics.py",
    "spark/test_wide_topics.py",
    "spark/test_writing.py",
    "spark/test_batch_reading.py",
    "pipeline/test_archive_repair.py",
    "pipeline/test_archive.py",
    "pipeline/test_wide_archive.py",
    "pipeline/test_archive_epochs.py",
    "pipeline/test_state_changes.py",
    "pipeline/test_archive_upkeep.py",
    "pipeline/test_lag.py",
    "console/test_accessibility.py",
    "console/test_many_partitions.py",
    "console/test_troubles.py",
    "console/test_moves.py",
    "console/test_rules.py",
)


def order(items: list[pytest.Item]) -> None:
    """All processes of a session have to compute the same order."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
