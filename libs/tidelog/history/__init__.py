"""Histories of what clients did to a cluster, and a checker that finds anomalies in them.

    with HistoryWriter(path) as history:
        history.write(SendInvoked(clock.monotonic_ms(), "p1", "sea", NO_PARTITION, 17))
        ...
    report = check_history(read_history(path))

`operations` defines the values, `history_format` the lines of a file, and `anomalies` what the
checker looks for and how it decides each corner case.
"""

from tidelog.history.anomalies import Anomaly, AnomalyFinding, Findings, Reference
from tidelog.history.checker import HistoryChecker, check_history
from tidelog.history.client_operations import (
    NO_BROKER,
    NO_PARTITION,
    OPEN_END,
    UNREADABLE_VALUE,
    HighWatermarkEnded,
    HighWatermarkInvoked,
    HistoryError,
    LossMark,
    Nemesis,
    Operation,
    Outcome,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
    Send,
    SendEnded,
    SendInvoked,
    sends_ended,
)
from tidelog.history.history_file import HistoryWriter, read_history
from tidelog.history.partition_check import PartitionCheck
from tidelog.history.report import Report
from tidelog.history.send_pairing import SendPairing

# Its former name, until version 0.3.0.
Finding = AnomalyFinding

__all__ = [
    "NO_BROKER",
    "NO_PARTITION",
    "OPEN_END",
    "UNREADABLE_VALUE",
    "Anomaly",
    "AnomalyFinding",
    "Finding",
    "Findings",
    "HighWatermarkEnded",
    "HighWatermarkInvoked",
    "HistoryChecker",
    "HistoryError",
    "HistoryWriter",
    "LossMark",
    "Nemesis",
    "Operation",
    "Outcome",
    "PartitionCheck",
    "PollEnded",
    "PollInvoked",
    "Reference",
    "ReplicaDigest",
    "Report",
    "Send",
    "SendEnded",
    "SendInvoked",
    "SendPairing",
    "check_history",
    "read_history",
    "sends_ended",
]
