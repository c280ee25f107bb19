"""Seeds that failed once, with a word on each: they are run on every occasion.

What a seed draws changes with the kinds of fault and with the workload; it stays here all
the same, for the neighbourhood of an old bug is a good place to look.
"""

REGRESSIONS: dict[int, str] = {
    2: "a restarted broker led by commands for its former life",
    9: "two leaders in one epoch, for the same reason",
    12: "a request that was answered a moment ago was given up: its batches went out twice",
    30: "a log whose start was lost with its segments (the simulator's mistake)",
    41: "the end of a watch was lost, and the watch waited for ever (the simulator's mistake)",
    45: "a deposed leader's last commit in the step in which it was deposed (likewise)",
    98: "sends of one producer that were not handed over in their order (likewise)",
    100: "a flipped bit in the number of records: readers were given nothing, for ever",
    210: "the same on a leader: a partition could not be read, and nobody noticed",
    211: "damage that is found at a later start than the first (the simulator's mistake)",
    257: "the same bit on a follower: equal in length, different in content",
    164: "a reader skipped nothing that an unclean election brought back (the checker's mistake)",
    283: "a log was cut, grew, and counted as committed up to its old checkpoint after a crash",
    588: "two unclean elections, the losers of the first in between (the simulator's mistake)",
    833: "an unclean election that brought back what the one before had given up (likewise)",
    985: "a backup of the store was believed that ended before what a command had told of",
    1254: "who read what a loss gave up had read past what came after it (the checker's mistake)",
    1285: "a bit was flipped in the only replica there was after a move (the simulator's mistake)",
    2031: "a topic was deleted, and its leader had yet to hear of it (the simulator's mistake)",
    9112: "a full disk kept a start from writing anew what a failed fsync had left on no disk",
    10461: "a move was over, and the leader had yet to hear of it (the simulator's mistake)",
    20580: "after the loss of a fence a former holder wrote what the next took for its own",
    20807: "a member went below what is committed on its way to where the leader's log begins",
    30293: "a stopping broker that had to register again wrote its registration twice",
    30303: "a deletion waited for ever for a broker that its partition had left, and that was gone",
    32021: "a StopReplica that comes late, as in few seeds (no bug)",
    50092: "a fence that was given up while a reader held what lay around it (the simulator's)",
    50124: "a mark of damage that failed as well, and the next life trusted what was dropped",
    51626: "a sync failed whose waiter a stop had cancelled, and the next one was believed",
    70030: "a topic was told without partitions while it was created: never read again",
}

# Faults that lead to an old bug by themselves, as `--plan` reads them: (seed, faults, a word).
PLANS: tuple[tuple[int, tuple[str, ...], str], ...] = (
    (
        7,
        (
            "7900 ms: etcd_away() for 8000 ms",
            "8000 ms: failed_fsync(broker-2, 1) for 5900 ms",
            "14000 ms: crash_broker(broker-2) for 300 ms",
        ),
        "a crash before the repair, and the next life trusted what a failed fsync had dropped",
    ),
    (
        70054,
        (
            "17163 ms: topic_deleted(1) for 845 ms",
            "17356 ms: reboot_all() for 355 ms",
        ),
        "a leader led again after an unclean election, and its producer was never told",
    ),
    (
        985,
        (
            "14442 ms: store_restored(broker-1) for 6226 ms",
            "15265 ms: half_cut(broker-1, controllers, out) for 3355 ms",
            "15484 ms: cut_from_etcd(broker-1) for 3561 ms",
            "16597 ms: disk_error(broker-2, write, 2) for 3558 ms",
        ),
        "a backup of the store was believed, although a command had told of more than it has",
    ),
)
