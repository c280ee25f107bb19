"""Two controller processes of one id, as `explain` reports them."""

from __future__ import annotations

from tidelog.inspection.controller_reports import WaitingController
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, found, text_of

WAITING = WaitingController(1, "10.0.0.9:7400", "b", NOW_MS - 9_000, "127.0.0.1:7401", "a")


def test_both_processes_are_named_and_no_partition_is_affected() -> None:
    cluster = DescribedCluster()
    cluster.partition("sea/0")
    cluster.waiting_controllers.append(WAITING)
    assert causes_of(cluster.explain()) == ["controller_id_contested"]
    contested = found(cluster.explain(), "controller_id_contested")
    assert contested.severity == "warning"
    assert contested.summary.startswith("two processes claim controller id 1")
    assert "the one at 127.0.0.1:7401 on a is registered" in contested.summary
    assert "the one at 10.0.0.9:7400 on b waits" in contested.summary
    assert "it began to wait at 2023-11-14T22:13:11Z (9.0 s ago)" in text_of(contested)
    assert "Stop the process at 10.0.0.9:7400 on b" in contested.next_step
    assert cluster.explain("sea", 0) == []


def test_a_standby_reports_it_when_no_controller_is_active() -> None:
    cluster = DescribedCluster()
    cluster.waiting_controllers.append(WAITING)
    cluster.controller_active = False
    assert "controller_id_contested" in causes_of(cluster.explain())
