"""Every command that prints a table, on real terminals of 80, 100 and 160 columns: ids, addresses
and states are in one piece, so that they can be read and copied, and nothing is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidelog.cli
from tidelog.cli.contexts import Context, Contexts, save_contexts
from tidelog.cli.exit_status import ExitStatus
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.wire import error_to_wire
from tidelog.units import setting_argument
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1 import broker_pb2
from unit.backup.written import batch
from unit.cli.conftest import Commands
from unit.cli.terminal import Shown, shown_on_terminal
from unit.cli.test_dump_log import batch_at, write_segment
from unit.cli.test_scrub import ScrubbingBroker
from unit.history.recording import Recording
from unit.history.test_check_history_command import sound, write

WIDTHS = (80, 100, 160)
TOPIC = "warehouse.inventory-changes.by-region_" + "x" * 30
NEW = "warehouse.orders-" + "y" * 40
RESTORED = "restored.inventory-changes.by-region_" + "z" * 30
CONFIG = {"min_insync_replicas": "2", "retention_ms": "604800000"}
ADDRESS = "broker-17.internal.eu-central-1.example.com:7517"
IPV6 = "[2001:db8:85a3::8a2e:370:7334]:17502"
RACK = "eu-central-1a"
OPERATION = "op-2026-11-26-rebalance-after-rack-eu-1b-returned"
MANY = [17, 18, 19, 20, 21, 22]
REASON = (
    "1 replica would be in sync where min_insync_replicas is 2, and acks=all be rejected; start "
    f"broker 2 at {ADDRESS} first"
)
MARKED = "running, maintenance, not added"
# Modules that print tables through other modules' functions, or define them.
NO_COMMANDS = {"output.py", "plan_view.py", "recovery_view.py", "logs.py"}


class Case(NamedTuple):
    """A command, the module that prints its table, and what has to be in one piece."""

    arguments: tuple[str, ...]
    module: str
    whole: tuple[str, ...]
    status: int = ExitStatus.DONE

    @property
    def name(self) -> str:
        return " ".join(word for word in self.arguments[:2] if "/" not in word)


def broker_details(address: str) -> pb.BrokerDetails:
    return pb.BrokerDetails(
        broker_id=1,
        status=pb.BROKER_STATUS_RUNNING,
        address=address,
        rack=RACK,
        broker_epoch=2**40,
        maintenance=True,
        not_added=True,
        replicas=120_000,
        leaders=3,
    )


def cases(directory: Path) -> list[Case]:
    partition = f"{TOPIC}/1"
    words = tuple(REASON.split())
    return [
        Case(("brokers", "list"), "brokers.py", (ADDRESS, RACK, MARKED, "120000")),
        Case(("brokers", "describe", "1"), "brokers.py", (ADDRESS, RACK, partition, "leader")),
        Case(
            ("brokers", "check-restart", "1"),
            "brokers.py",
            (partition, "under min isr", *words),
            ExitStatus.FAILED,
        ),
        Case(("brokers", "scrub", "--status"), "scrub.py", ("2023-11-14T22:13:20.000Z", "running")),
        Case(("cluster", "describe"), "cluster.py", (ADDRESS, IPV6, RACK, "stopping", TOPIC)),
        *topic_cases(words),
        Case(
            ("rebalance", "--dry-run"),
            "reassign.py",
            (f"{TOPIC}/4", "17,18,19,20,21,22", "23,24,25,26,27,28"),
        ),
        Case(
            ("leaders", "elect-preferred", "--dry-run"),
            "leaders.py",
            (f"{TOPIC}/3", f"{TOPIC}/4", "none", *words),
            ExitStatus.FAILED,
        ),
        Case(
            ("operations", "list"),
            "operations.py",
            (OPERATION, "set_replication_factor", "cancelling", "console@eu-1b"),
        ),
        Case(
            ("operations", "moves", OPERATION), "operations.py", (f"{TOPIC}/4", "active", "23,24")
        ),
        Case(
            ("recovery", "describe"), "recovery.py", (partition, "1,234,567 to 9,876,543", *words)
        ),
        Case(
            ("check-history", str(directory / "run.history")),
            "check_history.py",
            ("unseen", "kill broker 1"),
            ExitStatus.FAILED,
        ),
        Case(("context", "list"), "context.py", ("production-eu", f"{ADDRESS},{IPV6}", "yes")),
        Case(
            ("dump-log", str(directory / "sea-0")),
            "dump_log.py",
            ("2023-11-14T22:13:20.000Z", "gzip"),
        ),
        Case(("explain",), "explain.py", (TOPIC,), ExitStatus.FAILED),
        *apply_cases(directory),
        *backup_cases(str(directory / "backup")),
    ]


def topic_cases(words: tuple[str, ...]) -> list[Case]:
    return [
        Case(("topics", "list", "--rates", "0.1"), "listing.py", (TOPIC, "1 (unprotected)", "ok")),
        Case(("topics", "describe", TOPIC, "--logs"), "views.py", (TOPIC, "id-of-" + TOPIC, "ok")),
        Case(
            ("topics", "config", TOPIC),
            "views.py",
            ("min_insync_replicas", "default", *words),
        ),
        Case(
            ("topics", "create", NEW, "--dry-run"), "topic_creation.py", (NEW, "17,18,19,20,21,22")
        ),
        Case(
            ("topics", "add-partitions", TOPIC, "-p", "3", "--dry-run"),
            "changes.py",
            (TOPIC, "17,18,19,20,21,22"),
        ),
        Case(
            ("topics", "alter-config", TOPIC, "--set", "retention_ms=1", "--dry-run"),
            "changes.py",
            ("retention_ms", "7 d", "1 ms"),
        ),
    ]


def apply_cases(directory: Path) -> list[Case]:
    """The first plan waits for the scripted operation, which moves a partition of the topic."""
    declared = str(directory / "declared.yaml")
    return [
        Case(
            ("apply", "--file", declared, "--dry-run"),
            "plan_report.py",
            (
                *(TOPIC, "change", "partitions", "retention_ms", "7 d"),
                *(NEW, "create", "replication_factor"),
                OPERATION,
            ),
            ExitStatus.DRIFT,
        ),
        # The only declared topic is new, so that this plan waits for no operation.
        Case(
            ("apply", "--prune", "--file", str(directory / "new.yaml"), "--dry-run"),
            "apply.py",
            (TOPIC, "delete", NEW, "create"),
            ExitStatus.DRIFT,
        ),
    ]


def backup_cases(backup: str) -> list[Case]:
    rename = f"{TOPIC}={RESTORED}"
    settings = tuple(setting_argument(key, value) for key, value in CONFIG.items())
    return [
        Case(("backup", "show", backup), "checks.py", (TOPIC, *settings)),
        Case(("backup", "show", backup, "--partitions"), "checks.py", (f"{TOPIC}/1",)),
        Case(("backup", "verify", backup), "checks.py", ("sound",)),
        # The restore is complete already, so that this one writes no record.
        Case(
            ("backup", "restore", backup, "--rename", rename), "restoration.py", (RESTORED, "kept")
        ),
    ]


@pytest.fixture
def world(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cluster with long names, and files for the commands that read some."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    commands.cluster.topics.clear()
    commands.cluster.create(TOPIC, [0, 1], **CONFIG)
    back_up_and_restore(commands, str(tmp_path / "backup"))
    declare(tmp_path)
    scrubbing = commands.in_loop(started())
    script(commands, scrubbing.address)
    describe_others(commands)
    context = Context(f"{ADDRESS},{IPV6}", "controller-1.example.com:7401", protected=True)
    contexts = Contexts(tmp_path / "tidelog" / "contexts.toml", "production-eu")
    save_contexts(contexts.with_added("production-eu", context))
    write_segment(tmp_path / "sea-0", [batch_at(2**40)])
    history: Recording = sound()
    history.drained([(0, 1)])
    write(tmp_path / "run.history", history)
    yield tmp_path
    commands.in_loop(scrubbing.server.stop(None))


def back_up_and_restore(commands: Commands, directory: str) -> None:
    """Restores the backup before answers are scripted: the controller creates no topic then."""
    commands.cluster.partition(TOPIC, 0).batches = [batch(0), batch(2)]
    commands.controller.answer("AlterTopicConfig", pb.AlterTopicConfigResponse())
    created = commands.run("backup", "create", directory)
    assert created.exit_code == ExitStatus.DONE, created.output
    restored = commands.run("backup", "restore", directory, "--rename", f"{TOPIC}={RESTORED}")
    assert restored.exit_code == ExitStatus.DONE, restored.output
    commands.controller.answers.clear()


def declare(directory: Path) -> None:
    """Writes files for `apply`: one changes a topic and creates another; one only creates it."""
    new = {"partitions": 3, "replication_factor": 6}
    changed = {"partitions": 6, "config": {"retention_ms": 1}}
    files = {"declared.yaml": {TOPIC: changed, NEW: new}, "new.yaml": {NEW: new}}
    for name, topics in files.items():
        (directory / name).write_text(json.dumps({"topics": topics}))


async def started() -> ScrubbingBroker:
    broker = ScrubbingBroker()
    await broker.server.start()
    return broker


def script(commands: Commands, scrubbing: str) -> None:
    """The controller's answers, in the order of `cases`. `scrubbing`: the address of a broker."""
    answer = commands.controller.answer
    for address in (ADDRESS, ADDRESS, scrubbing):
        broker = broker_details(address)
        answer("DescribeBrokers", pb.DescribeBrokersResponse(brokers=[broker]))
    finding = pb.RestartFinding(
        topic=TOPIC, partition=1, effect=pb.RESTART_EFFECT_UNDER_MIN_ISR, reason=REASON
    )
    answer("CheckRestart", pb.CheckRestartResponse(under_min_isr=1, findings=[finding]))
    entry = pb.ConfigEntry(key="min_insync_replicas", default_value="2", description=REASON)
    retention = pb.ConfigEntry(key="retention_ms", value="604800000", is_set=True)
    topic = pb.TopicDetails(
        topic=TOPIC, topic_id="id", partition_count=4, config=[entry, retention], revision=1
    )
    answer("DescribeTopics", pb.DescribeTopicsResponse(topics=[topic]))
    placed = [pb.ReplicaAssignment(replicas=MANY)]
    answer("CreateTopic", pb.CreateTopicResponse(assignment=placed))
    answer("AddPartitions", pb.AddPartitionsResponse(added=1, revision=1, assignment=placed))
    answer("DeleteTopic", pb.DeleteTopicResponse(partitions=4))
    change = pb.ConfigChange(key="retention_ms", before="604800000", after="1")
    answer("AlterTopicConfig", pb.AlterTopicConfigResponse(changes=[change], revision=1))
    move = pb.Move(
        topic=TOPIC, topic_id="id", partition=4, original=MANY, target=[b + 6 for b in MANY]
    )
    share = pb.BrokerShare(broker_id=17, replicas_before=4_000, replicas_after=12_000)
    plan = pb.Plan(moves=[move], move_count=1, brokers=[share], digest="d")
    answer("Rebalance", pb.RebalanceResponse(plan=plan))
    error = error_to_wire(TidelogError(ErrorCode.NOT_ELIGIBLE_LEADER, REASON))
    leaders = [
        pb.LeaderResult(topic=TOPIC, partition=3, leader_before=-1, leader=2),
        pb.LeaderResult(topic=TOPIC, partition=4, leader_before=1, leader=2, error=error),
    ]
    answer("ElectPreferredLeaders", pb.ElectPreferredLeadersResponse(partitions=leaders))
    operation = pb.Operation(
        operation_id=OPERATION,
        kind=pb.OPERATION_KIND_SET_REPLICATION_FACTOR,
        state=pb.OPERATION_STATE_CANCELLING,
        requested_by="console@eu-1b",
        requested_at_ms=1_700_000_000_000,
        progress=pb.OperationProgress(moves=4_000, moves_done=12),
    )
    answer("ListOperations", pb.ListOperationsResponse(operations=[operation]))
    progress = pb.MoveProgress(move=move, state=pb.MOVE_STATE_ACTIVE, waits_for=[23, 24])
    answer("DescribeOperation", pb.DescribeOperationResponse(operation=operation, moves=[progress]))
    survivors = [
        pb.ReplicaSurvivor(
            broker_id=1,
            described=True,
            last_epoch=4,
            log_start_offset=1_234_567,
            log_end_offset=9_876_543,
        ),
        pb.ReplicaSurvivor(broker_id=2, problem=REASON, last_epoch=-1),
    ]
    details = pb.RecoveryDetails(
        topic=TOPIC, topic_id="id", partition=1, waits_for="broker 2", replicas=survivors
    )
    answer("DescribeRecovery", pb.DescribeRecoveryResponse(partitions=[details]))


def describe_others(commands: Commands) -> None:
    """Brokers know two more, with long addresses, and a standby controller."""
    for broker in commands.cluster.brokers.values():
        own = broker.metadata

        def metadata(request: Any, own: Any = own) -> broker_pb2.MetadataResponse:
            answer: broker_pb2.MetadataResponse = own(request)
            answer.brokers.add(broker_id=17, address=ADDRESS, rack=RACK, state="stopping")
            answer.controllers.add(controller_id=9, address=IPV6)
            return answer

        broker.metadata = metadata  # type: ignore[method-assign]


def names(printed: Sequence[Case]) -> set[str]:
    return {case.module for case in printed}


# More than twenty commands in one process; on a busy machine each of them takes seconds.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("columns", WIDTHS)
def test_ids_addresses_and_states_are_in_one_piece(
    commands: Commands, world: Path, columns: int
) -> None:
    printed = cases(world)
    bootstrap = ",".join(commands.cluster.bootstrap())
    shown = shown_on_terminal(
        [case.arguments for case in printed], columns, {"TIDELOG_BOOTSTRAP": bootstrap}
    )
    problems = [
        problem
        for case, screen in zip(printed, shown, strict=True)
        for problem in problems_of(case, screen, columns)
    ]
    assert not problems, "\n".join(problems)


def problems_of(case: Case, screen: Shown, columns: int) -> list[str]:
    text = "\n".join(screen.lines)
    if screen.status != case.status:
        return [f"{case.name} ended with {screen.status}: {text}\n{screen.stderr}"]
    return [
        f"{case.name} breaks {value!r} at {columns} columns:\n{text}"
        for value in case.whole
        if screen.broken(value, columns)
    ]


def test_every_module_that_prints_a_table_is_covered() -> None:
    tables = re.compile(r"\b(?:write_table|table_lines|write_leaders|plan_lines|move_lines)\(")
    root = Path(tidelog.cli.__file__).parent
    printing = {path.name for path in root.rglob("*.py") if tables.search(path.read_text())}
    covered = names(cases(Path()))
    # Plans are shown where operations begin.
    assert printing - NO_COMMANDS - {"beginning.py"} <= covered


@pytest.mark.parametrize(
    ("lines", "value", "is_broken"),
    [
        (["x" * 75 + " 10.0.0.17:7500"], "10.0.0.17:7500", True),
        (["x" * 60 + " 10.0.0.17:7500"], "10.0.0.17:7500", False),
        (["x" * 90], "x" * 90, False),
        (["x" * 50, "x" * 40], "x" * 90, True),
    ],
)
def test_a_broken_value_would_be_found(lines: list[str], value: str, *, is_broken: bool) -> None:
    assert Shown(0, lines, "").broken(value, 80) is is_broken
