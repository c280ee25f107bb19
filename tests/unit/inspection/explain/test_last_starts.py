"""What a departed broker left behind: why its last start failed, or the internal error with
which it ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.explain import Listening, SilentService
from tidelog.inspection.state_reports import Departure, RejectedStart
from unit.inspection.explain.described import NOW_MS, DescribedCluster, address, causes_of, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    return DescribedCluster()


def left_behind(cluster: DescribedCluster, cause: str, reason: str) -> None:
    """Broker 2 was stopped cleanly, according to its registration, and left this."""
    cluster.partition("sea/0", isr=(1, 3))
    cluster.partition("bay/0", (1,))
    cluster.kill(2, cause="broker_stopped")
    cluster.rejected_starts.append(
        RejectedStart(2, NOW_MS - 4_000, cause, reason, host="north", data_dir="/data/2")
    )


def test_an_orderly_end_after_an_internal_error_is_a_crash_with_its_reason(
    cluster: DescribedCluster,
) -> None:
    left_behind(cluster, "fault", "task log-syncer failed: MemoryError: raise its limit")
    findings = cluster.explain()
    assert causes_of(findings) == ["replica_dead"]
    assert findings[0].summary.startswith(
        "broker 2 is gone: it has crashed (task log-syncer failed: MemoryError: raise its limit): "
    )
    assert "its process ended with a fault on north at 2023-11-14T22:13:16Z" in text_of(findings[0])


def test_a_failed_start_is_reported_with_the_reason_of_the_broker(
    cluster: DescribedCluster,
) -> None:
    reason = "/data belongs to cluster c-1, and the metadata store is that of cluster c-2"
    left_behind(cluster, "data_directory", reason)
    findings = cluster.explain()
    assert causes_of(findings) == ["broker_cannot_start"]
    assert (
        f"broker 2 is gone: it cannot start ({reason}), as it reported 4.0 s ago: "
        "out of the ISR of 1 partition" == findings[0].summary
    )
    assert findings[0].next_step.startswith("Correct what its last start reported")


@pytest.mark.parametrize("listening", [Listening.ACCEPTS, Listening.ERRS])
def test_another_program_on_the_port_of_a_broker_is_not_that_broker(
    cluster: DescribedCluster, listening: Listening
) -> None:
    left_behind(cluster, "address", "cannot listen on 10.0.0.2:7300: port 7300 is in use")
    cluster.unheard(2)
    cluster.silent[:] = [SilentService(address(2), listening, "gave no answer", "broker", 2)]
    [finding] = cluster.explain()
    assert finding.cause == "broker_cannot_start"
    assert "port 7300 is in use" in finding.summary


def test_a_failed_start_is_reported_although_no_partition_is_affected(
    cluster: DescribedCluster,
) -> None:
    left_behind(cluster, "disk", "broker.json is damaged")
    cluster.keys.clear()
    assert causes_of(cluster.explain()) == ["broker_cannot_start"]


def test_traces_of_an_earlier_process_do_not_explain_a_later_crash(
    cluster: DescribedCluster,
) -> None:
    left_behind(cluster, "data_directory", "broker.json is damaged")
    cluster.departures.clear()
    cluster.departures.append(Departure(2, 12, NOW_MS - 1_000, "broker_crashed", address(2)))
    assert causes_of(cluster.explain()) == ["replica_dead"]


def test_a_process_that_waits_for_the_id_of_a_dead_broker_does_not_hide_its_death(
    cluster: DescribedCluster,
) -> None:
    left_behind(cluster, "waits_for_lease", "it waits")
    assert "broker_cannot_start" not in causes_of(cluster.explain())


def test_a_failed_start_before_the_broker_ran_is_ignored_despite_the_clocks(
    cluster: DescribedCluster,
) -> None:
    """Its machine's clock was ahead, so the start seems to come after the broker's last end."""
    left_behind(cluster, "data_directory", "restore the file")
    before_it_ran = replace(cluster.rejected_starts[0], at_ms=NOW_MS, has_run_since=True)
    cluster.rejected_starts[:] = [before_it_ran]
    assert causes_of(cluster.explain()) == ["broker_stopped"]


def test_a_failed_start_after_the_end_counts_despite_a_slow_clock(
    cluster: DescribedCluster,
) -> None:
    left_behind(cluster, "data_directory", "restore the file")
    behind = replace(cluster.rejected_starts[0], at_ms=NOW_MS - 600_000)
    cluster.rejected_starts[:] = [behind]
    assert causes_of(cluster.explain()) == ["broker_stopped"], "it may be older than the end"
    cluster.rejected_starts[:] = [replace(behind, after_registration=True)]
    assert causes_of(cluster.explain()) == ["broker_cannot_start"]


def test_a_silent_end_of_a_start_is_not_reported_with_an_earlier_reason(
    cluster: DescribedCluster,
) -> None:
    left_behind(cluster, "unfinished", "it ended before it registered, and reported no reason")
    [finding] = cluster.explain()
    assert finding.cause == "broker_cannot_start"
    assert finding.summary.startswith(
        "broker 2 is gone: its last start began 4.0 s ago; it ended before it registered"
    )
    assert "cannot start" not in finding.summary
    assert "its log contains the reason for its end" in finding.next_step


@pytest.mark.parametrize("cause", ["directory_in_use", "unfinished", "broker_id_in_use"])
def test_a_second_process_does_not_explain_the_end_of_the_registered_one(
    cluster: DescribedCluster, cause: str
) -> None:
    """Its registration still exists just after its process has ended."""
    registered = cluster.registered[2]
    left_behind(cluster, cause, "/data/2 is in use")
    cluster.unheard(2)
    cluster.departures.clear()
    cluster.registered[2] = registered
    assert "broker_cannot_start" not in causes_of(cluster.explain())
