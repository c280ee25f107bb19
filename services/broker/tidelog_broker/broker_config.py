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
    broker_id: int = Field(ge=0, le=2**31 - 1, description="Unique in the cluster, and for ever.")

    @property
    def service(self) -> str:
        """Name of the service in log lines and events."""
        return f"broker-{self.broker_id}"

    data_dir: Path = Field(description="Directory of this broker's data, and of no other's.")
    replace_directory: str = Field(
        default="",
        description="Id of the data directory that is lost for good and whose place data_dir takes "
        "under this broker_id; has no effect once it has.",
    )
    boot_id_file: Path = Field(
        default=Path("/proc/sys/kernel/random/boot_id"),
        description="Names the present boot of the machine: after a reboot, unsynced data may be "
        "lost. A file that is not there counts as a reboot at every start.",
    )
    rack: str = Field(
        default="",
        description="Where the machine stands: a partition's replicas lie in different racks while "
        "there are enough. Empty: in a rack of its own.",
    )
    replica_lag_time_max_ms: int = Field(
        default=10_000,
        ge=200,
        description="A replica that has not caught up for so long leaves the ISR.",
    )
    replica_lag_max_bytes: int | None = Field(
        default=None,
        ge=1 << 20,
        description="A replica that lacks more than this leaves the ISR; unset: it may lag by "
        "any amount, for replica_lag_time_max_ms.",
    )
    replica_fetch_max_wait_ms: int = Field(
        default=500, ge=10, le=10_000, description="How long a fetch waits at the leader."
    )
    replica_fetch_max_bytes: int = Field(
        default=4 << 20, ge=64 << 10, le=16 << 20, description="Most bytes of one replica fetch."
    )
    replica_fetch_partition_max_bytes: int = Field(
        default=1 << 20, ge=64 << 10, le=16 << 20, description="The same for one partition."
    )
    checkpoint_interval_ms: int = Field(
        default=5_000, ge=100, description="How often high watermarks are written to disk."
    )
    flush_interval_ms: int = Field(
        default=10_000, ge=100, description="How often logs are synced to disk."
    )
    retention_check_interval_ms: int = Field(
        default=30_000, ge=100, description="How often old segments are looked for."
    )
    stray_retention_ms: int = Field(
        default=3_600_000,
        ge=0,
        description="How long a replica that is no longer assigned here is kept aside.",
    )
    producer_id_expiration_ms: int = Field(
        default=7 * 24 * 3_600_000,
        ge=1_000,
        description="A partition forgets an idempotent producer that has written nothing to it for "
        "so long and 10 minutes more, unless the producer has a name; what it sends later "
        "is refused, but for its first batch, which is taken for that of a new one. Of more than "
        "20,000 without a name in a partition the most silent are forgotten once they have "
        "written nothing for 10 minutes, and of more than 100,000 at once.",
    )
    scrub_period_ms: int = Field(
        default=14 * 24 * 3_600_000,
        ge=0,
        description="In this time every batch on the disk is checked once, in the background, at "
        "the rate that this takes; 0: only when `tidelog brokers scrub` asks for it.",
    )
    scrub_bytes_per_second: int = Field(
        default=8 << 20,
        ge=1 << 10,
        description="The check of the disk reads no more than this in a second, even where a pass "
        "then takes longer than scrub_period_ms. It never takes more than 1 % of a processor, but "
        "for a pass that is requested at full rate.",
    )
    digest_range_offsets: int = Field(
        default=4_096,
        ge=0,
        le=1 << 14,
        description="Leader and followers compare digests of what they hold in ranges of so many "
        "offsets; 0: they compare nothing.",
    )
    producer_name_expiration_ms: int = Field(
        default=7 * 24 * 3_600_000,
        ge=1_000,
        description="A producer's name is given up that nobody has taken and whose producer has "
        "written nothing for at least so long: whoever takes it later begins with a new "
        "id, which fences no former holder and knows nothing of what they wrote. Time in which "
        "no broker runs does not count.",
    )
    shutdown_timeout_ms: int = Field(
        default=10_000,
        ge=0,
        description="How long a stopping broker waits until others lead its partitions and it "
        "is in sync with none.",
    )
