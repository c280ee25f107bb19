"""The findings of `tidelog explain` that each kind of fault requires, and the kinds that require
none. Pure."""

from __future__ import annotations

from typing import NamedTuple

from faults.catalogue import KINDS
from tidelog.inspection.explain import causes


class Expected(NamedTuple):
    """One finding that a fault requires.

    `causes`: any of these is right.
    `grace_s`: the time, from when the fault is in force, until the finding is required.
    `why`: the reason of the grace.
    `names_broker`: the finding's broker is one that the fault strikes.
    `lasts`: the finding stays after the fault, so that one new explanation is enough until the
    cluster is intact again.
    `names_second`: the finding names the location of the second process that the fault starts.
    `causes_if_struck_again`: these are right as well if another fault of the step strikes the same
    broker."""

    causes: frozenset[str]
    grace_s: float
    why: str
    names_broker: bool = True
    lasts: bool = False
    names_second: bool = False
    causes_if_struck_again: frozenset[str] = frozenset()


class Explicable(NamedTuple):
    expected: tuple[Expected, ...] = ()
    # Why no finding is expected, where `expected` is empty.
    nothing: str = ""


def _one(
    grace_s: float, why: str, *names: str, names_broker: bool = True, lasts: bool = False
) -> Expected:
    return Expected(frozenset(names), grace_s, why, names_broker, lasts)


_NOTICED = "the controller notices the end within 1 s, and brokers hear of it"
_DEAD = _one(2.0, _NOTICED, causes.REPLICA_DEAD, causes.BROKER_UNREACHABLE)
_STOPPED = _one(2.0, _NOTICED, causes.BROKER_STOPPED)
_PAUSED = _one(3.5, "what it did last counts as a sign of life for 2 s", causes.BROKER_PAUSED)
_PAUSED_BEFORE = _one(0.5, "its lease has ended before this begins", causes.BROKER_PAUSED)
_CONTROLLER = _one(
    1.5,
    "one round of questions, which may have begun before",
    causes.NO_CONTROLLER,
    causes.CONTROLLER_UNREACHABLE,
    causes.NO_STANDBY,
    names_broker=False,
)
_CONTESTED = _one(
    0.0, "the second process reports it", causes.BROKER_ID_CONTESTED, lasts=True
)._replace(names_second=True)
# A waiting copy takes the id a moment after the first process has ended; then only its registration
# can be explained.
_CONTESTED_BY_COPY = _CONTESTED._replace(
    causes_if_struck_again=frozenset({causes.DIRECTORY_NOT_INTACT})
)
_CUT_LINK = _one(
    4.0,
    "a follower lags for 2 s, or a leader sees no fetch for 1.5 s, and the leader may be deposed",
    causes.REPLICA_CUT_OFF,
    causes.BROKER_CUT_OFF,
    causes.BROKER_UNREACHABLE,
)
_STORE_ASKED = "leases are renewed every second, and a request to the store ends after 3 s"
_MEMBER = _one(
    4.0,
    "services probe each member of the store every 2 s, and miss it for 1 s",
    causes.STORE_MEMBER_UNREACHABLE,
    causes.STORE_SLOW,
    causes.STORE_UNREACHABLE,
    names_broker=False,
)
_DAMAGE = _one(
    0.0,
    "once the damage is found, which the effect of the fault shows",
    causes.REPLICA_CORRUPT,
    causes.DAMAGE_REPAIRED,
    lasts=True,
)
_CLIENTS = "between clients and brokers: no service is struck, and none can see it"
_LATE = "packets come late, and all of them: no bound of the cluster is exceeded"

EXPLICABLE: dict[str, Explicable] = {
    "kill_leader": Explicable((_DEAD,)),
    "stop_leader": Explicable((_STOPPED,)),
    "pause_leader": Explicable((_PAUSED,)),
    "pause_follower": Explicable((_PAUSED,)),
    "kill_controller": Explicable((_CONTROLLER,)),
    "stop_controller": Explicable((_CONTROLLER,)),
    "pause_controller": Explicable((_CONTROLLER,)),
    "restart_all_brokers": Explicable((_DEAD,)),
    "start_second_process": Explicable((_CONTESTED,)),
    "start_copied_process": Explicable((_CONTESTED_BY_COPY,)),
    "start_second_while_paused": Explicable((_PAUSED_BEFORE, _CONTESTED)),
    "take_over_by_copy": Explicable(
        (
            _one(
                0.0,
                "the registration of the second process reports it",
                causes.DIRECTORY_NOT_INTACT,
                causes.BROKER_ID_CONTESTED,
                lasts=True,
            )._replace(names_second=True),
        )
    ),
    "cut_off_leader": Explicable(
        (
            _one(
                2.0,
                "one round of questions, which waits for its answer",
                causes.BROKER_UNREACHABLE,
                # Once its registration has ended, it looks like a broker that has crashed.
                causes.REPLICA_DEAD,
            ),
        )
    ),
    "cut_follower": Explicable((_CUT_LINK,)),
    "cut_leader_from_followers": Explicable((_CUT_LINK,)),
    "cut_one_way": Explicable((_CUT_LINK,)),
    "cut_leader_from_etcd": Explicable(
        (
            _one(
                5.5,
                _STORE_ASKED,
                causes.STORE_UNREACHABLE,
                causes.BROKER_UNREGISTERED,
            ),
        )
    ),
    "drop_packets": Explicable(
        (
            _one(
                8.0,
                "segments count over 10 s, of which the packets sent before are a part, and "
                "reports are taken every 2 s",
                causes.PACKETS_LOST,
                # Its answer, or the connection to it, may be late as well.
                causes.BROKER_UNREACHABLE,
            ),
        )
    ),
    "delay_clients": Explicable(nothing=_CLIENTS),
    "cut_off_clients": Explicable(nothing=_CLIENTS),
    "hang_answers": Explicable(nothing=_CLIENTS),
    "delay_services": Explicable(nothing=_LATE),
    "fill_disk": Explicable((_one(1.5, "the next append is rejected", causes.DISK_FULL),)),
    "flip_bit": Explicable((_DEAD, _DAMAGE)),
    "flip_byte_of_leader": Explicable((_DAMAGE,)),
    "kill_etcd_member": Explicable((_MEMBER,)),
    "kill_etcd_leader": Explicable((_MEMBER,)),
    "kill_all_etcd": Explicable(
        (
            _one(
                5.5,
                _STORE_ASKED,
                causes.STORE_UNREACHABLE,
                names_broker=False,
            ),
        )
    ),
    "skew_clock": Explicable(
        (
            _one(
                4.0,
                "the clock is set within 1 s, and noticed with the next fetches",
                causes.CLOCK_SKEW,
                causes.CLOCK_IN_DOUBT,
            ),
        )
    ),
}
assert EXPLICABLE.keys() == KINDS.keys(), "every kind has its explanation"

# The causes that blame the broker which a finding names. Other causes name the broker that a person
# should check first (the leader of a waiting partition), or the resource that the machine lacks
# (CPU, memory).
BLAMING = frozenset(
    {
        causes.REPLICA_DEAD,
        causes.BROKER_STOPPED,
        causes.BROKER_CANNOT_START,
        causes.BROKER_PAUSED,
        causes.BROKER_UNREACHABLE,
        causes.BROKER_UNREGISTERED,
        causes.BROKER_ID_CONTESTED,
        causes.DISK_FULL,
        causes.DISK_ERROR,
        causes.REPLICA_CORRUPT,
        causes.REPLICA_REJECTS,
        causes.REPLICA_CUT_OFF,
        causes.BROKER_CUT_OFF,
        causes.CONTROLLER_CUT_OFF,
        causes.REPLICAS_DIVERGED,
        causes.RECORDS_DAMAGED,
        causes.STORE_UNREACHABLE,
        causes.CLOCK_SKEW,
        causes.CLOCK_IN_DOUBT,
    }
)
# These findings remain for an hour after a second process was rejected.
LASTING = frozenset({causes.BROKER_ID_CONTESTED})
# A fault of the store strikes every broker.
STRIKE_ALL = frozenset({"kill_etcd_member", "kill_etcd_leader", "kill_all_etcd"})
# A broker without enough CPU time looks like a struck one: it answers late or not at all. A finding
# about it within SHORT_OF_CPU_S of one that reports the shortage is the machine's fault.
OF_THE_MACHINE = frozenset({causes.CPU_STARVED, causes.BROKER_BUSY})
SHORT_OF_CPU_S = 15.0
