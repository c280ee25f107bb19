"""The client: `Producer`, `Consumer`, `Admin`, and the same without async in `sync`."""

from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.delivery import BatchDelivery, BatchReport, Delivery
from tidelog.client.fetch_state import OnOutOfRange
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.client.log_continuity import LogTruncatedError
from tidelog.client.producer import Producer
from tidelog.client.producers_codec import ProducerPosition
from tidelog.client.sequences import Identity
from tidelog.client.sync import SyncAdmin, SyncConsumer, SyncProducer
from tidelog.client.unclean_elections import UncleanElection

__all__ = [
    "Admin",
    "BatchDelivery",
    "BatchReport",
    "Consumer",
    "Delivery",
    "FetchedBatch",
    "Identity",
    "LogTruncatedError",
    "OnOutOfRange",
    "Producer",
    "ProducerPosition",
    "SyncAdmin",
    "SyncConsumer",
    "SyncProducer",
    "UncleanElection",
]
