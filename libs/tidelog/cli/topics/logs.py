"""Offsets and sizes of each replica's log, as the brokers report them."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.cli.output import duration_text, write_line, write_note, write_table
from tidelog.client.descriptions import TopicDescription
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.replica_reports import ReplicaLog, log_of, replicas_by_partition
from tidelog.units import size_text


def replica_logs(topic: TopicDescription, reported: ReportedStates) -> list[ReplicaLog]:
    by_partition = replicas_by_partition(reported.states, topic.name)
    return [
        log_of(described.partition, broker_id, by_partition.get(described.partition, {}))
        for described in topic.partitions
        for broker_id in described.replicas
    ]


def show_logs(logs: Sequence[ReplicaLog], reported: ReportedStates) -> None:
    write_line()
    write_table(
        ("partition", "broker", "role", "start", "HW", "end", "lag", "lag time", "size"),
        [
            (
                log.partition,
                log.broker_id,
                log.role,
                _text(log.log_start_offset),
                _text(log.high_watermark),
                _text(log.log_end_offset),
                _text(log.lag_records),
                "-" if log.lag_ms is None else duration_text(log.lag_ms),
                "-" if log.size_bytes is None else size_text(log.size_bytes),
            )
            for log in logs
        ],
    )
    for service in reported.silent:
        if service.role == "broker":
            write_note(f"{service} {service.problem}.")


def _text(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
