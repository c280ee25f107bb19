"""Whether another controller can take over from the active one."""

from __future__ import annotations

import pytest

from tidelog.inspection.explain import Listening, SilentService
from tidelog.inspection.state_reports import MissingController
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, found, text_of

TWO = "127.0.0.1:7402"


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    return described


def silent(cluster: DescribedCluster, controller_id: int, listening: Listening) -> None:
    address = f"127.0.0.1:740{controller_id}"
    cluster.silent.append(
        SilentService(address, listening, "gave no answer", "controller", controller_id)
    )


def test_a_cluster_that_never_had_a_standby_is_healthy(cluster: DescribedCluster) -> None:
    assert cluster.explain() == []


def test_a_crashed_standby_is_reported(cluster: DescribedCluster) -> None:
    cluster.missing_controllers.append(MissingController(2, TWO, NOW_MS - 9_000))
    silent(cluster, 2, Listening.REFUSES)
    missing = found(cluster.explain(), "no_standby")
    assert missing.severity == "warning"
    assert "controller-1 is active, and no standby controller can take over" in missing.summary
    assert f"controller-2 at {TWO} refuses connections" in text_of(missing)
    assert "without a clean stop" in text_of(missing)
    assert missing.next_step.startswith("Start controller 2 again")


def test_an_orderly_stopped_standby_is_reported_too(cluster: DescribedCluster) -> None:
    past = MissingController(2, TWO, NOW_MS - 9_000, stopped_at_ms=NOW_MS - 9_000)
    cluster.missing_controllers.append(past)
    assert "it was stopped at 2023-11-14T22:13:11Z (9.0 s ago)" in text_of(
        found(cluster.explain(), "no_standby")
    )


def test_a_paused_standby_cannot_take_over(cluster: DescribedCluster) -> None:
    silent(cluster, 2, Listening.ACCEPTS)
    assert "kill -CONT" in found(cluster.explain(), "no_standby").next_step


def test_a_busy_standby_can_take_over(cluster: DescribedCluster) -> None:
    silent(cluster, 2, Listening.BUSY)
    silent(cluster, 3, Listening.REFUSES)
    missing = found(cluster.explain(), "standby_missing")
    assert missing.severity == "info"
    assert "controller 3 is missing; controller 2 can take over" in missing.summary


def test_a_missing_standby_is_reported_only_for_the_whole_cluster(
    cluster: DescribedCluster,
) -> None:
    silent(cluster, 2, Listening.REFUSES)
    assert causes_of(cluster.explain()) == ["no_standby"]
    assert cluster.explain(topic="sea") == []


def test_without_an_active_controller_only_that_is_reported(cluster: DescribedCluster) -> None:
    cluster.stop_controller()
    silent(cluster, 2, Listening.REFUSES)
    assert causes_of(cluster.explain()) == ["no_controller"]


def test_paused_controllers_are_named_although_none_is_active(
    cluster: DescribedCluster,
) -> None:
    cluster.stop_controller()
    for controller_id in (1, 2):
        silent(cluster, controller_id, Listening.ACCEPTS)
    missing = found(cluster.explain(), "no_controller")
    assert "controller 1, controller 2 are paused" in missing.summary
    assert "kill -CONT" in missing.next_step


def test_stopped_controllers_are_to_be_started(cluster: DescribedCluster) -> None:
    cluster.stop_controller()
    silent(cluster, 1, Listening.REFUSES)
    missing = found(cluster.explain(), "no_controller")
    assert "paused" not in missing.summary
    assert missing.next_step.startswith("Start a controller")


def test_a_paused_standby_without_registration_has_not_ended(
    cluster: DescribedCluster,
) -> None:
    cluster.missing_controllers.append(MissingController(2, TWO, NOW_MS - 9_000))
    silent(cluster, 2, Listening.ACCEPTS)
    missing = found(cluster.explain(), "no_standby")
    assert "its registration has ended" in text_of(missing)
    assert "process has ended" not in text_of(missing)
