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
        description="a broker that has not acknowledged a command for so long is told of",
    )

    max_moves_per_broker: int = Field(
        default=5,
        ge=1,
        le=1_000,
        description="moves of partitions that may add a replica to one broker at once; others of "
        "an operation wait",
    )

    move_step_interval_ms: int = Field(
        default=150,
        ge=0,
        le=60_000,
        description="between two steps of moves that copy, where they concern the same broker: "
        "the room for whoever writes meanwhile",
    )
    handover_interval_ms: int = Field(
        default=100,
        ge=0,
        le=60_000,
        description="between two leaders that hand over to preferred ones or for maintenance, "
        "where these concern the same broker",
    )

    leader_balance: bool = Field(
        default=True,
        description="whether leadership returns to preferred replicas by itself",
    )
    leader_imbalance_percent: int = Field(
        default=10,
        ge=0,
        le=100,
        description="a broker gets back the leaderships that prefer it once it lacks more of them",
    )
    leader_balance_interval_ms: int = Field(
        default=300_000,
        ge=1_000,
        le=86_400_000,
        description="how often that is looked at",
    )

    @property
    def service(self) -> str:
        """The name of the service in log lines and events."""
        return f"controller-{self.controller_id}"

    state_changes_replication_factor: int = Field(
        default=3,
        ge=1,
        le=32,
        description="replicas of the topic __state_changes, which is created once so many "
        "brokers are running",
    )
