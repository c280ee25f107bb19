"""The quantities that are measured of a real cluster with many partitions. Pure."""

from __future__ import annotations

from bench.scale.exposition import StoreWork
from bench.scale.quantities import Quantity
from bench.scale.stages import Failover, Takeover

BOUNDED_SIZE = 10_000

QUANTITIES = (
    Quantity("creation_s", "creation", "s"),
    Quantity("first_writes_s", "first record in each partition", "s"),
    Quantity("detected_s", "failover: SIGKILL until noticed", "s", 0.2),
    Quantity("decided_s", "failover: noticed until all are decided (part of the next)", "s"),
    Quantity("stored_s", "failover: noticed until the store has all elections", "s"),
    Quantity("commanded_s", "failover: until all new leaders have their commands", "s"),
    Quantity("writable_s", "failover: until all new leaders lead", "s"),
    Quantity("failover_s", "failover: noticed until the last is writable", "s", 1.0),
    Quantity("failover_client_s", "failover: longest wait of a record, SIGKILL included", "s"),
    Quantity("crash_serves_s", "restart after SIGKILL: until it serves", "s"),
    Quantity("crash_in_sync_s", "restart after SIGKILL: until all are in sync", "s"),
    Quantity("handed_over_s", "controlled shutdown: until all leaderships are transferred", "s"),
    Quantity("shutdown_s", "controlled shutdown: until the process has ended", "s", 2.0),
    Quantity("restart_serves_s", "restart after a clean stop: until it serves", "s"),
    Quantity("restart_in_sync_s", "restart after a clean stop: until all are in sync", "s", 5.0),
    Quantity("elected_s", "controller takeover: SIGKILL until elected", "s"),
    Quantity("loaded_s", "controller takeover: elected until everything is loaded", "s"),
    Quantity("first_command_s", "controller takeover: elected until the first command", "s", 1.0),
    Quantity("all_taken_s", "controller takeover: elected until brokers acknowledged all", "s"),
    Quantity("idle_broker_percent", "idle: processor, busiest broker", "% of a core", 3.0),
    Quantity("idle_controller_percent", "idle: processor, active controller", "% of a core"),
    Quantity("idle_etcd_percent", "idle: processor, etcd", "% of a core"),
    Quantity("broker_mb", "idle: memory, largest broker", "MB", 300.0),
    Quantity("controller_mb", "idle: memory, active controller", "MB"),
    Quantity("open_segments", "idle: open segment files, maximum of a broker", "files", 1_000.0),
    Quantity("broker_scrape_ms", "scrape of a broker", "ms"),
    Quantity("controller_scrape_ms", "scrape of the active controller", "ms"),
    *(
        Quantity(f"{step}_{key}", f"{text} for each partition, {of_step}", unit)
        for step, of_step in (
            ("creation", "created"),
            ("failover", "failed over"),
            ("shutdown", "transferred"),
        )
        for key, text, unit in (
            ("transactions", "transactions", "operations"),
            ("puts", "keys written", "operations"),
            ("watch_events", "watch events", "operations"),
            ("syncs", "syncs of etcd's log", "operations"),
            ("sent_bytes", "bytes sent by etcd", "bytes"),
            ("received_bytes", "bytes received by etcd", "bytes"),
        )
    ),
)


def of_failover(found: Failover) -> dict[str, float]:
    return {
        "detected_s": found.detected / 1000,
        "decided_s": found.decided / 1000,
        "stored_s": found.stored / 1000,
        "commanded_s": found.received / 1000,
        "writable_s": found.writable / 1000,
        "failover_s": found.after_detection / 1000,
    }


def of_takeover(found: Takeover) -> dict[str, float]:
    return {
        "elected_s": found.elected / 1000,
        "loaded_s": found.loaded / 1000,
        "first_command_s": found.first_command / 1000,
        "all_taken_s": found.all_taken / 1000,
    }


def of_store(step: str, work: StoreWork, partitions: int) -> dict[str, float]:
    return {f"{step}_{key}": value for key, value in work.for_each(partitions).items()}
