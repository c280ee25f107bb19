"""How each kind of fault is injected, measured and healed; one file for each family of kinds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from faults.kinds.active import Active
from faults.kinds.clock import skew_clock
from faults.kinds.disk import fill_disk, flip_bit, flip_byte_of_leader
from faults.kinds.etcd import kill_all_etcd, kill_etcd_leader, kill_etcd_member
from faults.kinds.network import (
    cut_follower,
    cut_leader_from_etcd,
    cut_leader_from_followers,
    cut_off_leader,
    cut_one_way,
    drop_packets,
)
from faults.kinds.process import (
    kill_controller,
    kill_leader,
    pause_controller,
    pause_follower,
    pause_leader,
    restart_all_brokers,
    stop_controller,
    stop_leader,
)
from faults.kinds.second_process import (
    start_copied_process,
    start_second_process,
    start_second_while_paused,
    take_over_by_copy,
)
from faults.kinds.traffic import cut_off_clients, delay_clients, delay_services, hang_answers
from faults.scene import Scene

Inject = Callable[[Scene], Awaitable[Active]]

INJECT: Mapping[str, Inject] = {
    inject.__name__: inject
    for inject in (
        kill_leader,
        stop_leader,
        pause_leader,
        pause_follower,
        kill_controller,
        stop_controller,
        pause_controller,
        restart_all_brokers,
        start_second_process,
        start_copied_process,
        start_second_while_paused,
        take_over_by_copy,
        cut_off_leader,
        cut_follower,
        cut_leader_from_followers,
        cut_one_way,
        cut_leader_from_etcd,
        drop_packets,
        delay_clients,
        cut_off_clients,
        hang_answers,
        delay_services,
        fill_disk,
        flip_bit,
        flip_byte_of_leader,
        kill_etcd_member,
        kill_etcd_leader,
        kill_all_etcd,
        skew_clock,
    )
}

__all__ = ["INJECT", "Active", "Inject"]
