"""Whether a fault had an effect.

The crash of a dead process has none, nor has the cut of a link over which nothing was sent, nor
a full disk to which nothing was written. Each kind is judged by what the world shows of it, and
by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from simulation.faults import Fault
from simulation.processes import BrokerProcess, Service
from simulation.topic_lives import AGAIN, GONE, RESIZED
from tidelog_runtime.metadata.schema import (
    decode_cluster,
    decode_controller,
    decode_topic,
)

if TYPE_CHECKING:
    from simulation.world import World

# Drawn among the faults, because their work has to succeed beside them.
_NO_DISORDER = ("throttled", "consent")

# Whether the fault had an effect; called after its duration, before it is ended.
HadEffect: TypeAlias = Callable[[], bool]
_Begin: TypeAlias = Callable[[], object]
_Look: TypeAlias = "Callable[[World, Fault, _Begin], HadEffect]"


def began(world: World, fault: Fault, begin: _Begin) -> HadEffect:
    """Calls `begin`, which begins the fault at once, and returns the check of its effect."""
    looks = _LOOKS.get(fault.kind, _disturbs)
    return looks(world, fault, begin)


def struck(effects: Mapping[str, int]) -> int:
    """Returns how many faults had an effect, without the kinds that put nothing out of order."""
    return sum(times for kind, times in effects.items() if kind not in _NO_DISORDER)


def _at_once(
    is_there: Callable[[World, Fault], bool],
) -> _Look:
    """The fault has an effect if its target exists when it begins."""

    def look(world: World, fault: Fault, begin: _Begin) -> HadEffect:
        found = is_there(world, fault)
        begin()
        return lambda: found

    return look


def _counted(count: Callable[[World, Fault], int]) -> _Look:
    """The fault has an effect if a count grows while it lasts."""

    def look(world: World, fault: Fault, begin: _Begin) -> HadEffect:
        before = count(world, fault)
        begin()
        return lambda: count(world, fault) > before

    return look


def _disturbs(world: World, _: Fault, begin: _Begin) -> HadEffect:
    """The fault has an effect if a message is lost, late, repeated or overtaken by it."""
    network = world.network
    before = network.last_disturbance
    begin()
    number = network.last_disturbance
    return lambda: number != before and network.had_effect(number)


def _topic_there(topic: str) -> _Look:
    """The fault has an effect if the topic exists at its end, where it is deleted."""

    def look(world: World, fault: Fault, begin: _Begin) -> HadEffect:
        begin()
        key = world.keys.topic(f"{topic}{fault.args[0]}")
        return lambda: world.store_data.get(key) is not None

    return look


def _has_shrunk(world: World, fault: Fault, begin: _Begin) -> HadEffect:
    begin()

    def has_shrunk() -> bool:
        held = world.store_data.get(world.keys.topic(f"{RESIZED}{fault.args[0]}"))
        return held is not None and decode_topic(held.value).shrunk

    return has_shrunk


def _service(world: World, fault: Fault) -> Service:
    return world.service(str(fault.args[0]))


def _runs(world: World, fault: Fault) -> bool:
    return _service(world, fault).alive


def _runs_unpaused(world: World, fault: Fault) -> bool:
    process = _service(world, fault).process
    return process is not None and not process.paused


def _controller_is_active(world: World, _: Fault) -> bool:
    held = world.store_data.get(world.keys.controller)
    return held is not None and world.controllers[decode_controller(held.value).controller_id].alive


def _is_up(world: World, fault: Fault) -> bool:
    return world.network.host(str(fault.args[0])).up


def _any_is_up(world: World, _: Fault) -> bool:
    return any(world.network.host(broker.host).up for broker in world.brokers.values())


def _etcd_is_there(world: World, _: Fault) -> bool:
    return world.etcd.is_there


def _rejected_leaderless(world: World, _: Fault) -> int:
    return world.etcd.refused_leaderless


def _denied_watches(world: World, fault: Fault) -> int:
    return world.etcd.denied_watches[str(fault.args[0]) if fault.args else ""]


def _misled(world: World, fault: Fault) -> int:
    return world.etcd.misled[str(fault.args[0])]


def _level(world: World, _: Fault) -> int:
    held = world.store_data.get(world.keys.cluster)
    return 0 if held is None else decode_cluster(held.value).format_version


def _moves_wanted(world: World, _: Fault) -> int:
    return world.mover.operations


def _disk_failures(world: World, fault: Fault, what: str) -> int:
    return _service(world, fault).machine.disk.failed[what]


def _hung(world: World, _: Fault) -> int:
    return sum(service.machine.disk.failed["hang"] for service in world.services())


def _has_data(world: World, fault: Fault) -> bool:
    return bool(_service(world, fault).machine.disk.paths())


def _can_be_copied(world: World, fault: Fault) -> bool:
    disk = _service(world, fault).machine.disk
    return _has_data(world, fault) and not (disk.flipped or disk.spoiled)


def _twin(world: World, fault: Fault) -> BrokerProcess:
    broker = _service(world, fault)
    assert isinstance(broker, BrokerProcess)
    return world.twin(broker.broker_id)


def _contents_changed(world: World, fault: Fault, begin: _Begin) -> HadEffect:
    """The fault has an effect if the contents have changed since the backup was taken."""
    disk = _service(world, fault).machine.disk
    before, can_be_copied = disk.contents(), _can_be_copied(world, fault)
    begin()
    return lambda: can_be_copied and disk.contents() != before


_LOOKS: dict[str, _Look] = {
    "crash_broker": _at_once(_runs),
    "crash_controller": _at_once(_runs),
    "crash_active_controller": _at_once(_controller_is_active),
    "pause_broker": _at_once(_runs_unpaused),
    "pause_controller": _at_once(_runs_unpaused),
    "shut_down": _at_once(_runs),
    "reboot": _at_once(_is_up),
    "reboot_all": _at_once(_any_is_up),
    "empty_disk": _at_once(_has_data),
    "second_process": _counted(lambda w, f: _twin(w, f).rejected),
    "copied_directory": _at_once(lambda w, f: _can_be_copied(w, f) and not _twin(w, f).alive),
    "restored_directory": _contents_changed,
    "swapped_directory": _at_once(_can_be_copied),
    "etcd_away": _at_once(_etcd_is_there),
    "etcd_leaderless": _counted(_rejected_leaderless),
    "watch_loss": _counted(_denied_watches),
    "compaction": _counted(_denied_watches),
    "store_restored": _counted(_misled),
    "failed_fsync": _counted(lambda w, f: _disk_failures(w, f, "sync")),
    "disk_error": _counted(lambda w, f: _disk_failures(w, f, str(f.args[1]))),
    "disk_full": _counted(lambda w, f: _disk_failures(w, f, "space")),
    "disk_hang": _counted(_hung),
    "bit_flip": _counted(lambda w, f: _service(w, f).machine.disk.flipped),
    "bad_sector": _counted(lambda w, f: _service(w, f).machine.disk.spoiled),
    "clock_jump": _counted(lambda w, f: _service(w, f).machine.clock.wrong_readings),
    "topic_deleted": _topic_there(GONE),
    "topic_recreated": _topic_there(AGAIN),
    # At its end the topic has lost the partitions that it regains next.
    "partitions_removed": _has_shrunk,
    "older_tail": _counted(lambda w, f: w.directed_reached[f.kind]),
    "lost_join": _counted(lambda w, f: w.directed_reached[f.kind]),
    "silent_successor": _counted(lambda w, f: w.directed_reached[f.kind]),
    "needless_consent": _counted(lambda w, f: w.directed_reached[f.kind]),
    "two_damages": _counted(lambda w, f: w.directed_reached[f.kind]),
    "late_watch": _counted(lambda w, f: w.directed_reached[f.kind]),
    "damaged_lone_leader": _counted(lambda w, f: w.directed_reached[f.kind]),
    "unanswered_produce": _counted(lambda w, f: w.directed_reached[f.kind]),
    # The level is raised above that of the process which is the last one.
    "rolling_upgrade": _counted(_level),
    "move": _counted(_moves_wanted),
    "move_and_back": _counted(_moves_wanted),
    "move_cancelled": _counted(_moves_wanted),
    # A key is written or a request sent in any case; rules count the results.
    **dict.fromkeys(_NO_DISORDER, _at_once(lambda *_: True)),
}
