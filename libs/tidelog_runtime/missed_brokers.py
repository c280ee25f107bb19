"""Of which brokers is told that they left: the same by brokers and by every controller. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from tidelog.inspection.model import Departure as Missed
from tidelog_runtime.metadata.schema import Departure

# A broker that left and holds no replicas, so that nobody misses its data, is told of for so
# long. Longer, and whoever was taken out of service for good would be told of for ever.
UNMISSED_TOLD_MS = 86_400_000


def missed_brokers(
    departures: Mapping[int, Departure],
    registered: Container[int],
    holds_replicas: Callable[[int], bool],
    wall_ms: int,
) -> Iterator[Missed]:
    """Those that have not come back, newest first. `wall_ms`: the teller's clock."""
    newest_first = sorted(departures.items(), key=lambda item: (-item[1].at_ms, item[0]))
    for broker_id, left in newest_first:
        if broker_id in registered:
            continue
        if wall_ms - left.at_ms <= UNMISSED_TOLD_MS or holds_replicas(broker_id):
            yield Missed(broker_id, left.broker_epoch, left.at_ms, left.cause.value, left.address)
