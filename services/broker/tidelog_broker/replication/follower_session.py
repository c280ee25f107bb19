"""The follower's side of a fetch session. Pure.

It knows what the leader was sent, and so what the next request may leave out. See "Replica fetch"
in docs/internals/protocol.md, rule `fetch-session-bound-to-incarnations`, and KIP-227.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog_broker.partition.exchange import FetchPosition
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replication.transport import NO_SESSION, ReplicaFetchResult

Positions = Mapping[ReplicaKey, FetchPosition | None]


class EpochPair(NamedTuple):
    """Broker epochs of both ends, to which a session is bound."""

    follower: int
    leader: int


class SessionRequest(NamedTuple):
    session_id: int
    session_sequence: int
    named: Mapping[ReplicaKey, FetchPosition]
    forgotten: Sequence[ReplicaKey]


class FollowerSession:
    """The positions that one fetcher has sent to its leader.

    One request at a time: `next`, then `answered`; or `reset` if no answer came, because it is not
    known then what the leader has received.

    - `numbers`: counts the sessions of this incarnation, over all leaders.
    - `synced`: a position reports how far the disk is, and a change of that alone is sent, too.
    """

    def __init__(self, numbers: Iterator[int], *, synced: bool) -> None:
        self.synced = synced
        self._numbers = numbers
        self.epochs = EpochPair(0, 0)
        self._id = NO_SESSION
        self._sequence = 0
        # None: the leader knows the partition, and the next request must name it.
        self._sent: dict[ReplicaKey, FetchPosition | None] = {}

    @property
    def is_open(self) -> bool:
        """Whether a session is open. If not, the next request needs every position."""
        return self._id != NO_SESSION

    def bind(self, epochs: EpochPair) -> None:
        """Ends the session if it belongs to other incarnations."""
        if epochs != self.epochs:
            self.reset()
            self.epochs = epochs

    def reset(self) -> None:
        self._id = NO_SESSION
        self._sequence = 0
        self._sent = {}

    def renew(self, replica: ReplicaKey) -> None:
        """Has the next request name the partition: it is followed from scratch."""
        if replica in self._sent:
            self._sent[replica] = None

    def has_partitions(self, positions: Positions) -> bool:
        """Whether the session has any partition after a request with these positions."""
        leaving = sum(1 for at, p in positions.items() if p is None and at in self._sent)
        return len(self._sent) > leaving or any(p is not None for p in positions.values())

    def next(self, positions: Positions) -> SessionRequest:
        """Returns the next request.

        `positions`: those of all partitions that may have changed since the last request, and of
        every partition if no session is open; None: not to be fetched.
        """
        if self._id == NO_SESSION:
            named = {replica: p for replica, p in positions.items() if p is not None}
            self._sent = dict(named)
            return SessionRequest(NO_SESSION, next(self._numbers), named, ())
        self._sequence += 1
        named = {}
        forgotten = []
        for replica, position in positions.items():
            if position is None:
                if replica in self._sent:
                    del self._sent[replica]
                    forgotten.append(replica)
            elif self._differs(position, self._sent.get(replica)):
                self._sent[replica] = named[replica] = position
        return SessionRequest(self._id, self._sequence, named, forgotten)

    def _differs(self, position: FetchPosition, sent_position: FetchPosition | None) -> bool:
        if sent_position is None:
            return True
        # A leader does not act on the start of the log.
        same = sent_position._replace(log_start_offset=position.log_start_offset)
        if not self.synced:
            same = same._replace(flushed_offset=position.flushed_offset)
        return position != same

    def sent_position(self, replica: ReplicaKey) -> FetchPosition | None:
        """Returns the position that the last request named, or that it left out as known."""
        return self._sent.get(replica)

    def answered(self, session_id: int, results: Sequence[ReplicaFetchResult]) -> bool:
        """Notes the results of an answer.

        Returns whether the session continues. Both ends do the same: a partition that was answered
        with an error or a divergence has to be named again.
        """
        if session_id == NO_SESSION or self._id not in (NO_SESSION, session_id):
            self.reset()
            return False
        self._id = session_id
        for result in results:
            if result.answer is None or result.answer.diverging is not None:
                self._sent.pop(result.replica, None)
        return True
