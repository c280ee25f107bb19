"""How a broker reaches other brokers and the controller. `edge/replica_client.py` and
`edge/controller_client.py` are the real ones; the simulator has its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog.model import Batch
from tidelog.request_bounds import MAX_REPORTED_DIGESTS as MAX_REPORTED_DIGESTS
from tidelog_broker.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.partition.range_digest import BatchSummary, RangeDigest
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_runtime.disk_reports import DiskReport
from tidelog_runtime.leader_reports import UnreachableLeadersReport

# Beyond the long poll itself: how long an answer to a fetch may take.
ANSWER_TIMEOUT_MS = 5_000


# How long an answer of the controller to a report may take.
REPORT_TIMEOUT_MS = 2_000


class ReplicaFetchEntry(NamedTuple):
    replica: ReplicaKey
    position: FetchPosition
    max_bytes: int


class ReportedDigest(NamedTuple):
    """What a follower holds in a range. `batches`, `segments` and `contents`: where the leader has
    asked for them, as they are on the follower's disk."""

    replica: ReplicaKey
    digest: RangeDigest
    batches: Sequence[BatchSummary] = ()
    segments: Sequence[str] = ()
    contents: Sequence[Batch] = ()


class DivergedRange(NamedTuple):
    """Where a leader has other batches than the follower reported, or `wants_contents` since it
    cannot read its own."""

    replica: ReplicaKey
    start: int
    end: int
    wants_contents: bool = False


# As `session_id`: of a request, that it names every partition and opens a session; of a
# response, that there is none.
NO_SESSION = 0


class FetchName(NamedTuple):
    """As no other fetch at the same leader is called while it is under way."""

    broker_id: int
    broker_epoch: int
    synced: bool
    session_id: int
    session_sequence: int


class ReplicaFetchRequest(NamedTuple):
    """`session_sequence`: which request of its session this is, from 1 on; with NO_SESSION
    which session of the follower's life. `synced`: which of the follower's two fetches this
    is (see `fetchers`). `forgotten`: partitions that leave the session. `now_ms`: the
    follower's wall clock; 0: it does not say. `digests`: at most MAX_REPORTED_DIGESTS."""

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
    def name(self) -> FetchName:
        return FetchName(
            self.broker_id,
            self.broker_epoch,
            self.synced,
            self.session_id,
            self.session_sequence,
        )


class ReplicaFetchResult(NamedTuple):
    """One of `answer` and `error` is set."""

    replica: ReplicaKey
    answer: FetchAnswer | None
    error: TidelogError | None
    log_start_offset: int


class ReplicaFetchResponse(NamedTuple):
    """`session_id`: to be named in the next request. `now_ms`: the leader's wall clock; 0: it does
    not say."""

    error: TidelogError | None
    results: Sequence[ReplicaFetchResult]
    session_id: int = NO_SESSION
    now_ms: int = 0
    diverged: Sequence[DivergedRange] = ()


class PeerUnreachableError(Exception):
    """No answer from the other broker."""


class Peers(Protocol):
    """Every other broker, by address. Raises `PeerUnreachableError`."""

    async def reach(self, address: str) -> None:
        """Returns once a fetch can be sent there, which says nothing of its answer; where that is
        not known, at once."""

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse: ...

    def hurry(self, address: str, request: ReplicaFetchRequest) -> None:
        """Has the leader answer this fetch at once, if it is under way. May come to nothing:
        then the fetch is answered when it would have been."""

    async def close(self) -> None: ...


class ControllerUnreachableError(Exception):
    """No answer from the controller; what it was told may have reached it."""


class TakesLeaderReports(Protocol):
    """The active controller, by address. Raises `ControllerUnreachableError`."""

    async def report_unreachable_leaders(
        self, address: str, report: UnreachableLeadersReport
    ) -> TidelogError | None:
        """Why the report was not taken; None: it was."""


class TakesDiskReports(Protocol):
    """The active controller, by address. Raises `ControllerUnreachableError`."""

    async def report_disk(self, address: str, report: DiskReport) -> TidelogError | None:
        """Why the report was rejected; None: it was accepted."""


class Controllers(TakesLeaderReports, TakesDiskReports, Protocol):
    async def close(self) -> None: ...
