"""Which departed brokers to report; brokers and controllers use the same rule. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from tidelog.inspection.state_reports import Departure as Missed
from tidelog_runtime.metadata.schema import Departure

# A departed broker that holds no replicas is reported for this time. Without the limit, a broker
# that was taken out of service would be reported forever.
REPORT_WITHOUT_REPLICAS_MS = 86_400_000


def departed_brokers(
    departures: Mapping[int, Departure],
    registered: Container[int],
    holds_replicas: Callable[[int], bool],
    wall_ms: int,
) -> Iterator[Missed]:
    """Returns departed brokers that have not come back, newest departure first.

    - `wall_ms`: the wall clock of the process that reports them.
    """
    newest_first = sorted(departures.items(), key=lambda item: (-item[1].at_ms, item[0]))
    for broker_id, left in newest_first:
        if broker_id in registered:
            continue
        if wall_ms - left.at_ms <= REPORT_WITHOUT_REPLICAS_MS or holds_replicas(broker_id):
            yield Missed(broker_id, left.broker_epoch, left.at_ms, left.cause.value, left.address)
