"""Configuration of a broker: TOML, then TIDELOG_*, then flags."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tidelog_runtime.config import Address, RegisteredConfig


class BrokerConfig(RegisteredConfig):
    """A Tidelog broker: stores partitions, serves clients, follows other leaders."""

    listen: Address = Field(
        default="127.0.0.1:7500", description="host:port to serve gRPC on; port 0 picks one."
    )
    broker_id: int = Field(
        ge=0,
        le=2**31 - 1,
        description="Id of the broker, unique in the cluster; never give it to another broker.",
    )

    @property
    def service(self) -> str:
        """Name of the service in log lines and events."""
        return f"broker-{self.broker_id}"

    data_dir: Path = Field(description="Data directory of this broker alone.")
    replace_directory: str = Field(
        default="",
        description="Id of the lost data directory that data_dir replaces under this broker_id; "
        "has no effect after the replacement.",
    )
    boot_id_file: Path = Field(
        default=Path("/proc/sys/kernel/random/boot_id"),
        description="File with the id of the machine's current boot: unsynced data may be lost "
        "in a reboot. A missing file counts as a reboot at every start.",
    )
    rack: str = Field(
        default="",
        description="Rack of the machine: the replicas of a partition are placed in different "
        "racks while there are enough. Empty: a rack of its own.",
    )
    replica_lag_time_max_ms: int = Field(
        default=10_000,
        ge=200,
        description="Time after which a replica that has not caught up leaves the ISR.",
    )
    replica_lag_max_bytes: int | None = Field(
        default=None,
        ge=1 << 20,
        description="Lag above which a replica leaves the ISR; unset: any lag is allowed for "
        "replica_lag_time_max_ms.",
    )
    replica_fetch_max_wait_ms: int = Field(
        default=500, ge=10, le=10_000, description="Longest wait of a replica fetch at the leader."
    )
    replica_fetch_max_bytes: int = Field(
        default=4 << 20,
        ge=64 << 10,
        le=16 << 20,
        description="Largest answer to one replica fetch.",
    )
    replica_fetch_partition_max_bytes: int = Field(
        default=1 << 20,
        ge=64 << 10,
        le=16 << 20,
        description="Largest share of one partition in it.",
    )
    checkpoint_interval_ms: int = Field(
        default=5_000, ge=100, description="Interval at which high watermarks are written to disk."
    )
    flush_interval_ms: int = Field(
        default=10_000, ge=100, description="Interval at which logs are synced to disk."
    )
    retention_check_interval_ms: int = Field(
        default=30_000, ge=100, description="Interval at which old segments are deleted."
    )
    stray_retention_ms: int = Field(
        default=3_600_000,
        ge=0,
        description="Time for which a replica that is no longer assigned here is kept before it is "
        "deleted.",
    )
    producer_id_expiration_ms: int = Field(
        default=7 * 24 * 3_600_000,
        ge=1_000,
        description="A partition forgets an idempotent producer without a name that has not "
        "written to it for this time and 10 minutes more. Its later batches are rejected, except "
        "a first batch, which counts as that of a new producer. Above 20,000 producers "
        "without a name, a partition forgets those that have been silent longest after 10 "
        "minutes of silence; above 100,000 at once.",
    )
    scrub_period_ms: int = Field(
        default=14 * 24 * 3_600_000,
        ge=0,
        description="Period in which the scrub checks every batch on the disk once, in the "
        "background; 0: only on request by `tidelog brokers scrub`.",
    )
    scrub_bytes_per_second: int = Field(
        default=8 << 20,
        ge=1 << 10,
        description="Bound on the read rate of the scrub, even if a pass then takes longer than "
        "scrub_period_ms. Small batches are bounded by scrub_cpu_percent first.",
    )
    scrub_cpu_percent: float = Field(
        default=1.0,
        ge=0.1,
        le=100,
        description="Bound on the CPU time of the scrub, in percent of one processor, even if a "
        "pass then takes longer than scrub_period_ms. A pass that is requested at full rate has no "
        "bound. `tidelog explain` reports a pass that is overdue, and what bounds it.",
    )
    digest_range_offsets: int = Field(
        default=4_096,
        ge=0,
        le=1 << 14,
        description="Length of the ranges of offsets whose digests leader and followers compare; "
        "0: no comparison.",
    )
    producer_name_expiration_ms: int = Field(
        default=7 * 24 * 3_600_000,
        ge=1_000,
        description="An unused producer name expires after this time without a write. The next "
        "producer of that name gets a new id, which fences no previous holder and does "
        "not know their batches. Time in which no broker runs does not count.",
    )
    shutdown_timeout_ms: int = Field(
        default=10_000,
        ge=0,
        description="Longest wait of a stopping broker until others lead its partitions and it "
        "is in no ISR.",
    )
