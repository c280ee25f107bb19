"""`Admin` without async."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tidelog.client.admin import Admin
from tidelog.client.background import BackgroundClient, blocking, settings_of


class SyncAdmin(BackgroundClient[Admin]):
    """`Admin` without async, for any number of threads: each method of `Admin`, with the same
    parameters and result."""

    @settings_of(Admin)
    def __init__(self, make: Callable[[], Admin]) -> None:
        super().__init__(make)

    def traced(self) -> AbstractContextManager[str]:
        """Returns a context manager that yields a trace id, to which requests inside belong, as
        `Admin.traced`."""
        return self._call(lambda admin: admin.traced())

    def new_operation_id(self) -> str:
        """Returns an id for a request that the caller may have to repeat. The same request with
        the same id is the same operation."""
        return self._call(lambda admin: admin.new_operation_id())

    # The cluster, and producers.
    describe_cluster = blocking(Admin.describe_cluster)
    init_producer_id = blocking(Admin.init_producer_id)
    partition_counts = blocking(Admin.partition_counts)
    describe_producers = blocking(Admin.describe_producers)

    # Topics.
    list_topics = blocking(Admin.list_topics)
    find_topics = blocking(Admin.find_topics)
    describe_topic = blocking(Admin.describe_topic)
    topic_details = blocking(Admin.topic_details)
    default_replication_factor = blocking(Admin.default_replication_factor)
    create_topic = blocking(Admin.create_topic)
    delete_topic = blocking(Admin.delete_topic)
    plan_deletion = blocking(Admin.plan_deletion)
    alter_topic_config = blocking(Admin.alter_topic_config)
    add_partitions = blocking(Admin.add_partitions)
    remove_partitions = blocking(Admin.remove_partitions)
    recover_partitions = blocking(Admin.recover_partitions)
    describe_recovery = blocking(Admin.describe_recovery)

    # Operations.
    reassign = blocking(Admin.reassign)
    rebalance = blocking(Admin.rebalance)
    add_brokers = blocking(Admin.add_brokers)
    remove_brokers = blocking(Admin.remove_brokers)
    set_replication_factor = blocking(Admin.set_replication_factor)
    reverse_operation = blocking(Admin.reverse_operation)
    cancel_operation = blocking(Admin.cancel_operation)
    plan_cancellation = blocking(Admin.plan_cancellation)
    list_operations = blocking(Admin.list_operations)
    describe_operation = blocking(Admin.describe_operation)
    operation_moves = blocking(Admin.operation_moves)
    operation_moves_page = blocking(Admin.operation_moves_page)
    set_throttle = blocking(Admin.set_throttle)
    describe_throttle = blocking(Admin.describe_throttle)
    raise_feature_level = blocking(Admin.raise_feature_level)
    describe_feature_level = blocking(Admin.describe_feature_level)

    # Brokers and leaders.
    describe_brokers = blocking(Admin.describe_brokers)
    elect_preferred_leaders = blocking(Admin.elect_preferred_leaders)
    move_leaders = blocking(Admin.move_leaders)
    set_maintenance = blocking(Admin.set_maintenance)
    check_restart = blocking(Admin.check_restart)
