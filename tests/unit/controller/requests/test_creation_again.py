"""Creations that brokers are missing for, and those that are asked for again half-way."""

from __future__ import annotations

from tidelog_controller.state.admin_requests import RemovedBrokers
from unit.controller.driver import cluster


def test_a_factor_that_only_removed_brokers_could_carry_names_them() -> None:
    driver = cluster(1, 2, 3)
    driver.begin_operation(RemovedBrokers((3,)), "shrink")
    error = driver.replies[driver.create_topic(replication_factor=3)].error
    assert error is not None
    assert "2 brokers take new replicas, since [3] were removed" in error.message
