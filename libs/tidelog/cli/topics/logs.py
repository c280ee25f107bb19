"""Offsets and sizes of each replica's log, as the brokers report them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidelog.cli.output import duration_text, size_text, write_line, write_note, write_table
from tidelog.client.descriptions import TopicDescription
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.model import NOT_KNOWN, ReplicaState
from tidelog.inspection.replica_reports import leader_of, progress_of, replicas_by_partition

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """The log of a replica. None: no broker reports it. Lags are measured by the leader; the
    leader's own are 0."""

    partition: int
    broker_id: int
    role: str
    log_start_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    size_bytes: int | None
    lag_records: int | None
    lag_ms: int | None


def replica_logs(topic: TopicDescription, reported: ReportedStates) -> list[ReplicaLog]:
    by_partition = replicas_by_partition(reported.states, topic.name)
    return [
        log
        for described in topic.partitions
        for log in _logs(
            described.partition, described.replicas, by_partition.get(described.partition, {})
        )
    ]


def _logs(
    partition: int, broker_ids: Sequence[int], replicas: Mapping[int, ReplicaState]
) -> Iterator[ReplicaLog]:
    leader = leader_of(replicas)
    for broker_id in broker_ids:
        reported, progress = replicas.get(broker_id), progress_of(leader, broker_id)
        leads = reported is not None and reported is leader
        end = (
            reported.log_end_offset
            if reported
            else _known(progress.log_end_offset if progress else None)
        )
        yield ReplicaLog(
            partition,
            broker_id,
            reported.role if reported else _UNKNOWN,
            reported.log_start_offset if reported else None,
            reported.high_watermark if reported else None,
            end,
            reported.size_bytes if reported else None,
            0 if leads else _known(progress.lag_records if progress else None),
            0 if leads else _known(progress.lag_ms if progress else None),
        )


def _known(value: int | None) -> int | None:
    return None if value == NOT_KNOWN else value


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
