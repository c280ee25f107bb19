"""How a broker reaches other brokers and the controller.

`edge/replica_client.py` and `edge/controller_client.py` implement it; the simulator has its own.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.errors import TidelogError
from tidelog_broker.core.fetch_messages import ReplicaFetchRequest, ReplicaFetchResponse
from tidelog_runtime.broker_reports import DiskReport, UnreachableLeadersReport

# How long an answer to a fetch may take beyond the long poll itself.
ANSWER_TIMEOUT_MS = 5_000
# How long the controller's answer to a report may take.
REPORT_TIMEOUT_MS = 2_000


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
