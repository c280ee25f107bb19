"""Configuration of the controller."""

from __future__ import annotations

from pydantic import Field

from tidelog_runtime.config import Address, RegisteredConfig


class ControllerConfig(RegisteredConfig):
    controller_id: int = Field(ge=0, description="id of this controller, unique in the cluster")
    listen: Address = Field(
        default="127.0.0.1:7400", description="host:port to serve gRPC on; port 0: any free one"
    )
    command_timeout_ms: int = Field(
        default=10_000,
        ge=100,
        le=600_000,
        description="a broker that has not acknowledged a command for so long is reported as "
        "overdue",
    )

    max_moves_per_broker: int = Field(
        default=5,
        ge=1,
        le=1_000,
        description="moves of partitions that may add a replica to one broker at once; the "
        "operation's further moves wait",
    )

    move_step_interval_ms: int = Field(
        default=150,
        ge=0,
        le=60_000,
        description="minimum time between two move steps that copy to or from the same broker; "
        "leaves capacity for producers",
    )
    handover_interval_ms: int = Field(
        default=100,
        ge=0,
        le=60_000,
        description="minimum time between two leadership transfers (to preferred leaders, or for "
        "maintenance) that concern the same broker",
    )

    leader_balance: bool = Field(
        default=True,
        description="whether leadership returns to preferred replicas automatically",
    )
    leader_imbalance_percent: int = Field(
        default=10,
        ge=0,
        le=100,
        description="a broker gets its preferred leaderships back once it lacks more than this "
        "share of them",
    )
    leader_balance_interval_ms: int = Field(
        default=300_000,
        ge=1_000,
        le=86_400_000,
        description="interval between two checks of the leader balance",
    )

    @property
    def service(self) -> str:
        """The name of the service in log lines and events."""
        return f"controller-{self.controller_id}"

    state_changes_replication_factor: int = Field(
        default=3,
        ge=1,
        le=32,
        description="replication factor of the topic __state_changes, which is created once so "
        "many brokers are running",
    )
