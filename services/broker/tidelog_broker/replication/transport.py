"""How a broker reaches other brokers and the controller.

`edge/replica_client.py` and `edge/controller_client.py` implement it; the simulator has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog.model import Batch
from tidelog.request_bounds import MAX_REPORTED_DIGESTS as MAX_REPORTED_DIGESTS
from tidelog_broker.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.partition.range_digest import BatchSummary, RangeDigest
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_runtime.broker_reports import DiskReport, UnreachableLeadersReport

# How long an answer to a fetch may take beyond the long poll itself.
ANSWER_TIMEOUT_MS = 5_000


# How long the controller's answer to a report may take.
REPORT_TIMEOUT_MS = 2_000


class ReplicaFetchEntry(NamedTuple):
    replica: ReplicaKey
    position: FetchPosition
    max_bytes: int


class ReportedDigest(NamedTuple):
    """What a follower holds in a range.

    `batches`, `segments` and `contents`: as they are on the follower's disk, if the leader
    requested them.
    """

    replica: ReplicaKey
    digest: RangeDigest
    batches: Sequence[BatchSummary] = ()
    segments: Sequence[str] = ()
    contents: Sequence[Batch] = ()


class DivergedRange(NamedTuple):
    """A range in which the leader has other batches than the follower reported.

    `wants_contents`: the leader cannot read its own batches, and requests the follower's.
    """

    replica: ReplicaKey
    start: int
    end: int
    wants_contents: bool = False


# As `session_id` of a request: it names every partition and opens a session. As that of a response:
# there is no session.
NO_SESSION = 0


class FetchId(NamedTuple):
    """Identifies a fetch among all others at the same leader while it is in flight."""

    broker_id: int
    broker_epoch: int
    synced: bool
    session_id: int
    session_sequence: int


class ReplicaFetchRequest(NamedTuple):
    """A follower's fetch.

    - `session_sequence`: the number of this request in its session, from 1 on; with NO_SESSION the
      number of the session in the follower's incarnation.
    - `synced`: which of the follower's two fetches this is (see `fetchers`).
    - `forgotten`: partitions that leave the session.
    - `now_ms`: the follower's wall clock; 0: not known.
    - `digests`: at most MAX_REPORTED_DIGESTS.
    """

    broker_id: int
    broker_epoch: int
    leader_broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    entries: Sequence[ReplicaFetchEntry]
    session_id: int = NO_SESSION
    session_sequence: int = 0
    synced: bool = False
    forgotten: Sequence[ReplicaKey] = ()
    now_ms: int = 0
    digests: Sequence[ReportedDigest] = ()

    @property
    def name(self) -> FetchId:
        return FetchId(
            self.broker_id,
            self.broker_epoch,
            self.synced,
            self.session_id,
            self.session_sequence,
        )


class ReplicaFetchResult(NamedTuple):
    """The result for one partition. One of `answer` and `error` is set."""

    replica: ReplicaKey
    answer: FetchAnswer | None
    error: TidelogError | None
    log_start_offset: int


class ReplicaFetchResponse(NamedTuple):
    """The leader's answer.

    - `session_id`: for the next request.
    - `now_ms`: the leader's wall clock; 0: not known.
    """

    error: TidelogError | None
    results: Sequence[ReplicaFetchResult]
    session_id: int = NO_SESSION
    now_ms: int = 0
    diverged: Sequence[DivergedRange] = ()


class PeerUnreachableError(Exception):
    """The other broker did not answer."""


class Peers(Protocol):
    """All other brokers, by address. Calls raise `PeerUnreachableError`."""

    async def reach(self, address: str) -> None:
        """Returns once a fetch can be sent there, or at once if that is not known.

        It does not say that the fetch is answered.
        """

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse: ...

    def complete_early(self, address: str, request: ReplicaFetchRequest) -> None:
        """Requests an answer to this fetch at once, if it is in flight.

        May have no effect: then the fetch is answered at its usual time.
        """

    async def close(self) -> None: ...


class ControllerUnreachableError(Exception):
    """The controller did not answer; it may have received the report."""


class LeaderReportReceiver(Protocol):
    """The active controller, by address. Raises `ControllerUnreachableError`."""

    async def report_unreachable_leaders(
        self, address: str, report: UnreachableLeadersReport
    ) -> TidelogError | None:
        """Returns why the report was rejected; None: it was accepted."""


class DiskReportReceiver(Protocol):
    """The active controller, by address. Raises `ControllerUnreachableError`."""

    async def report_disk(self, address: str, report: DiskReport) -> TidelogError | None:
        """Returns why the report was rejected; None: it was accepted."""


class Controllers(LeaderReportReceiver, DiskReportReceiver, Protocol):
    async def close(self) -> None: ...
