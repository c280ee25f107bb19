"""`tidelog trace` on planted events: its output, its sources, and its errors."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli import trace_view
from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.trace import _follow
from tidelog.cli.trace_targets import parse_since, parse_target
from tidelog.client.event_streams import EventStreams, Silent
from tidelog.rpc.event_codec import event_from_wire, event_to_wire
from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog.state_changes.json_form import format_time
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC, from_value, value_of
from tidelog.state_changes.tracing import TraceScope
from tidelog.state_changes.tracing import trace as changes_of
from unit.cli.conftest import Commands
from unit.client.planted_topic import publish
from unit.state_changes.sample_events import (
    BEGAN_MS,
    elsewhere,
    leader_death,
    of_broker,
    state_change,
)
from unit.state_changes.test_log_lines import line

_GOLDEN = Path(__file__).parent / "golden"
SEA_0 = TraceScope("sea", 0)


@pytest.fixture
def commands(commands: Commands) -> Commands:
    """The topic of state changes exists and is empty."""
    commands.cluster.create(STATE_CHANGES_TOPIC, [0, 1, 0])
    return commands


def _shown(events: list[StateChange], scope: TraceScope = SEA_0) -> str:
    return "\n".join(trace_view.stories(changes_of(events, scope))) + "\n"


def _golden(name: str) -> str:
    return (_GOLDEN / name).read_text()


# What the death of the leader led to: a trace begins with the partition that was requested.
LED_TO = "sea/0: leader 3 in leader epoch 6, ISR 1,3, 1 change since 2026-09-21T14:13:20.010Z"


def _traced(name: str) -> str:
    return f"{LED_TO}\n\n{_golden(name)}"


def _unacknowledged() -> list[StateChange]:
    return [
        event
        for event in leader_death()
        if event.broker != 1 or event.stage not in (Stage.COMPLETED, Stage.ACKNOWLEDGED)
    ]


def test_a_leaders_death_is_shown_from_its_cause_to_its_last_follower() -> None:
    assert _shown(leader_death() + elsewhere()) == _golden("leader_death.txt")


def test_an_unfinished_change_is_marked() -> None:
    assert _shown(_unacknowledged()) == _golden("not_completed.txt")


def test_a_topic_is_condensed_to_one_line_per_change() -> None:
    twin = [e._replace(partition=4) for e in leader_death() if e.change_id]
    changes = changes_of(leader_death() + twin + elsewhere(), TraceScope("sea"))
    assert "\n".join(trace_view.condensed_lines(changes)) + "\n" == _golden("topic.txt")


def test_a_condensed_line_names_missing_acknowledgements() -> None:
    lines = trace_view.condensed_lines(changes_of(_unacknowledged(), TraceScope("sea")))
    assert lines[-1].endswith("NOT COMPLETED by broker 1")


def test_an_ignored_report_is_not_attributed_to_the_reported_leader() -> None:
    report = of_broker(0, Kind.LEADER_UNREACHABLE, 2)
    requested = report._replace(service="broker-1", stage=Stage.REQUESTED, change_id="report")
    (condensed,) = trace_view.condensed_lines(changes_of([requested], TraceScope()))
    assert condensed.endswith("NOT COMPLETED")


def test_a_single_stage_shows_all_its_details() -> None:
    (completed,) = [
        e for e in leader_death() if (e.kind, e.stage) == (Kind.ELECTION, Stage.COMPLETED)
    ]
    words = [word.strip() for word in trace_view.event_line(completed).split("  ")[1:]]
    assert words == [
        "controller-1", "election", "completed", "+4 ms", "sea/0", "because broker_crashed",
        "leader epoch 6", "revision 1043", "change c3-17", "leader 2 -> 3, isr 1,2,3 -> 1,3",
    ]  # fmt: skip


def test_a_failed_broker_change_has_no_partition_count() -> None:
    failed = of_broker(0, Kind.REGISTRATION, 2)._replace(stage=Stage.FAILED)
    (line_shown,) = trace_view.condensed_lines(changes_of([failed], TraceScope()))
    assert line_shown.endswith("  FAILED")


def test_a_json_document_has_every_stage() -> None:
    document = trace_view.document(changes_of(_unacknowledged(), SEA_0)[-1])
    assert document["change_id"] == "c3-17"
    assert len(document["stages"]) == 8
    assert document["missing"] == [
        {"kind": "become_follower", "broker": 1, "stage": "completed", "overtaken_by": None,
         "forgotten_by": None}
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", ["", "/3", "sea/", "sea/x", "sea/-1", "sea/1/2"])
def test_an_invalid_partition_is_rejected(wrong: str) -> None:
    with pytest.raises(UsageError, match="neither TOPIC nor TOPIC/PARTITION"):
        parse_target(wrong)


@pytest.mark.parametrize("topic", ["x" * 201, "x" * 10_000, "a b", "..", "a\nb", "ü"])
@pytest.mark.parametrize("partition", ["", "/0"])
def test_an_invalid_topic_name_is_wrong_usage(topic: str, partition: str) -> None:
    with pytest.raises(UsageError, match=r"^the topic name .* a name has 1 to 200 characters"):
        parse_target(topic + partition)


def test_an_invalid_time_is_rejected() -> None:
    with pytest.raises(UsageError, match="neither an age"):
        parse_since("soon", now_ms=0)


# From log files.


def _write_logs(directory: Path) -> tuple[Path, Path]:
    plain, zipped = directory / "broker-1.log", directory / "rest.log.gz"
    events = leader_death() + elsewhere()
    own = [line(event) for event in events if event.service == "broker-1"]
    plain.write_bytes(b"a line of something else\n" + b"".join(own))
    rest = b"".join(line(event) for event in events if event.service != "broker-1")
    zipped.write_bytes(gzip.compress(rest))
    return plain, zipped


def test_log_files_give_the_same_trace(commands: Commands, tmp_path: Path) -> None:
    plain, zipped = _write_logs(tmp_path)
    result = commands.run("trace", "--files", str(plain), str(zipped), "sea/0")
    assert result.stdout == _traced("leader_death.txt")
    assert "2 files: 16 lines, 1 line of other kinds" in result.stderr


def test_a_truncated_line_is_not_an_event(commands: Commands, tmp_path: Path) -> None:
    plain, _ = _write_logs(tmp_path)
    plain.write_bytes(bytes(3 << 20) + b"\n" + plain.read_bytes())
    result = commands.run("trace", "--files", str(plain), "sea/0")
    assert "become_follower" in result.stdout
    assert "1 file: 4 lines, 2 lines of other kinds" in result.stderr


def test_log_files_without_the_partition_are_reported(commands: Commands, tmp_path: Path) -> None:
    plain, _ = _write_logs(tmp_path)
    result = commands.run("trace", "--files", str(plain), "sea/7")
    assert result.stdout == ""
    assert "The files have no changes of sea/7" in result.stderr


def test_a_truncated_gzip_file_is_read_up_to_its_end(commands: Commands, tmp_path: Path) -> None:
    plain, zipped = _write_logs(tmp_path)
    zipped.write_bytes(zipped.read_bytes()[:-20])
    result = commands.run("trace", "--files", str(plain), str(zipped), "sea/0")
    assert result.exit_code == ExitStatus.DONE
    assert "rest.log.gz is damaged as a gzip file, and read as far as it goes" in result.stderr
    assert "controller-1" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--files"], "--files needs log files"),
        (["--files", "sea/0"], "--files needs log files"),
        (["--files", "nowhere.log", "elsewhere.log"], "there are no files nowhere.log"),
        (["--files", "--follow", "x.log"], "--follow queries the cluster"),
        (["sea/0", "a.log"], "log files need --files"),
        (["sea/99999999999999"], "no partition has a higher number than 2147483647"),
    ],
)
def test_wrong_usage_says_what_is_valid(
    commands: Commands, arguments: list[str], message: str
) -> None:
    result = commands.run("trace", *arguments)
    assert result.exit_code == ExitStatus.USAGE
    assert message in result.stderr


# From services.


def _report(commands: Commands, events: list[StateChange]) -> None:
    async def report() -> None:
        for event in events:
            commands.cluster.brokers[0 if event.service == "broker-1" else 1].state_changes.add(
                event
            )
        for broker in commands.cluster.brokers.values():
            # Otherwise its log lines would mix with the command's output.
            broker.state_changes.flush()

    commands.in_loop(report())


def test_services_together_give_the_trace(commands: Commands) -> None:
    _report(commands, leader_death() + elsewhere())
    result = commands.run("trace", "sea/0")
    assert result.stdout == _traced("leader_death.txt")


def test_events_of_a_dead_service_are_read_from_the_topic(commands: Commands) -> None:
    _report(commands, [event for event in leader_death() if event.service == "broker-1"])
    publish(commands.cluster, [e for e in leader_death() if e.service != "broker-1"])
    result = commands.run("trace", "sea/0")
    assert result.stdout == _traced("leader_death.txt")
    assert STATE_CHANGES_TOPIC not in result.stderr


def test_an_event_from_a_service_and_the_topic_is_shown_once(commands: Commands) -> None:
    _report(commands, leader_death() + elsewhere())
    publish(commands.cluster, leader_death() + elsewhere())
    result = commands.run("trace", "sea/0", "--json")
    documents = [json.loads(text) for text in result.stdout.splitlines()]
    assert sum(len(document["stages"]) for document in documents) == len(leader_death())


def test_without_the_topic_the_trace_comes_from_services_with_a_note(commands: Commands) -> None:
    del commands.cluster.topics[STATE_CHANGES_TOPIC]
    _report(commands, leader_death())
    result = commands.run("trace", "sea/0")
    assert result.stdout == _traced("leader_death.txt")
    assert "There is no topic __state_changes" in result.stderr


def test_without_a_topic_argument_the_whole_cluster_is_traced(commands: Commands) -> None:
    _report(commands, leader_death() + elsewhere())
    told_of = [text.split("  ")[1:3] for text in commands.run("trace").stdout.splitlines()]
    assert told_of == [
        ["broker_fenced", "broker 2 (broker epoch 42)"],
        ["election", "ore/0"],
        ["broker_left", "broker 2 (broker epoch 42)"],
        ["election", "sea/0"],
        ["isr_shrink", "sea/1"],
        ["broker_left", "broker 9 (broker epoch 49)"],
    ]


def test_json_has_one_document_per_change(commands: Commands) -> None:
    _report(commands, leader_death())
    result = commands.run("trace", "sea/0", "--json")
    kinds = [json.loads(text)["kind"] for text in result.stdout.splitlines()]
    assert kinds == ["broker_fenced", "broker_left", "election"]


def test_a_trace_begins_with_the_creation_of_the_partition(commands: Commands) -> None:
    joined = of_broker(-30_000, Kind.BROKER_JOINED, 2, revision=900)
    created = state_change(
        -20_000, "controller-1", Kind.CREATE, Stage.COMPLETED, revision=1_000, leader_epoch=5,
        leader=2, isr=[1, 2, 3],
    )  # fmt: skip
    _report(commands, [joined, created, *leader_death()])
    partition, empty, first, *_ = commands.run("trace", "sea/0").stdout.splitlines()
    assert partition.startswith("sea/0: leader 3 in leader epoch 6, ISR 1,3, 2 changes since ")
    assert (empty, first.split("  ")[1:3]) == ("", ["create", "sea/0"])


def test_since_omits_older_changes(commands: Commands) -> None:
    late = state_change(86_400_000, "broker-1", Kind.ISR_EXPAND, Stage.COMPLETED, revision=2000)
    _report(commands, [*leader_death(), late])
    since = format_time(BEGAN_MS + 3_600_000)
    result = commands.run("trace", "sea/0", "--since", since)
    assert "isr_expand" in result.stdout
    assert "election" not in result.stdout


def test_silent_services_are_named(commands: Commands) -> None:
    _report(commands, leader_death())
    silent = commands.cluster.brokers[0]
    commands.in_loop(silent.close())
    silent.alive = True  # other brokers take it for the active one
    result = commands.run("trace", "sea/0")
    assert f"No answer from {silent.address}" in result.stderr
    assert "election" in result.stdout


def test_a_silent_service_with_two_names_is_named_once(commands: Commands) -> None:
    _report(commands, leader_death())
    silent, heard = commands.cluster.brokers[0], commands.cluster.brokers[1]
    commands.in_loop(silent.close())
    silent.alive = True  # other brokers take it for the active one
    host, _, port = silent.address.rpartition(":")
    assert host == "127.0.0.1"
    bootstrap = f"{heard.address},localhost:{port}"
    result = commands.run("trace", "sea/0", "--bootstrap", bootstrap)
    notes = [note for note in result.stderr.splitlines() if note.startswith("No answer from")]
    assert [note.split()[3] for note in notes if f":{port} (" in note] == [silent.address]


def test_a_partition_without_recorded_events_is_reported(commands: Commands) -> None:
    result = commands.run("trace", "sea/1")
    assert "No service keeps a change of sea/1" in result.stderr
    assert result.exit_code == ExitStatus.DONE


def test_a_quiet_partition_has_no_changes_since_a_time(commands: Commands) -> None:
    result = commands.run("trace", "sea/0", "--since", "2026-01-31T08:30:00Z")
    note = "No changes of sea/0 since 2026-01-31T08:30:00.000Z; give an earlier --since"
    assert note in result.stderr
    assert "remembers" not in result.stderr
    assert result.exit_code == ExitStatus.DONE


def test_following_continues_with_new_events(commands: Commands) -> None:
    first, *rest = leader_death()
    other_topic, other_partition, broker_left = elsewhere()

    async def followed() -> list[StateChange]:
        async with EventStreams(commands.cluster.bootstrap()) as streams:
            batches = streams.follow(SEA_0)
            broker = commands.cluster.brokers[0]
            broker.state_changes.add(first)
            seen = await _events_of(batches, 1)
            for event in (other_topic, other_partition, broker_left, rest[0]):
                broker.state_changes.add(event)
            seen += await _events_of(batches, 2)
            await batches.aclose()
            return seen

    seen = commands.in_loop(asyncio.wait_for(followed(), 15))
    assert seen == [first, broker_left, rest[0]]


def test_following_does_not_repeat_past_events(capsys: pytest.CaptureFixture[str]) -> None:
    """This holds for events from the topic and from the service."""
    *past, new = leader_death()

    class Streams:
        async def follow(self, _: TraceScope) -> AsyncGenerator[list[StateChange | Silent]]:
            yield [event_from_wire(event_to_wire(event)) for event in [*past, new]]

    streams: Any = Streams()
    by_topic = [from_value(value_of(event)) for event in past]
    asyncio.run(_follow(streams, by_topic, SEA_0, as_json=False))
    assert capsys.readouterr().out == trace_view.event_line(new) + "\n"


async def _events_of(
    batches: AsyncGenerator[list[StateChange | Silent]], at_least: int
) -> list[StateChange]:
    seen: list[StateChange] = []
    while len(seen) < at_least:
        seen += [event for event in await anext(batches) if isinstance(event, StateChange)]
    return seen


# Topics and partitions that do not exist.


@pytest.mark.parametrize("target", ["nosuch", "nosuch/0", "sea/99"])
def test_an_unknown_topic_without_recorded_events_is_rejected(
    commands: Commands, target: str
) -> None:
    creation = state_change(0, "broker-1", Kind.TOPIC_CREATION, Stage.COMPLETED, partition=-1)
    _report(commands, [creation, *leader_death()])
    result = commands.run("trace", target)
    assert result.exit_code == ExitStatus.NOT_FOUND
    assert result.stdout == ""
    assert "does not exist" in result.stderr


@pytest.mark.parametrize("target", ["ore", "ore/0", "ore/5"])
def test_a_deleted_topic_has_a_trace(commands: Commands, target: str) -> None:
    deletion = state_change(
        0, "broker-1", Kind.TOPIC_DELETION, Stage.COMPLETED, topic="ore", partition=-1
    )
    _report(commands, [deletion])
    result = commands.run("trace", target)
    assert result.exit_code == ExitStatus.DONE
    assert "topic_deletion  ore" in result.stdout


def test_an_end_that_only_the_topic_could_have_is_not_reported_missing(commands: Commands) -> None:
    """The service logged the start before the oldest event that it remembers."""
    publish(commands.cluster, _unacknowledged())
    _report(commands, [])
    result = commands.run("trace", "sea/0")
    assert "- become_follower of broker 1: whether it was completed is not known" in result.stdout
    _report(commands, _unacknowledged())
    assert "! become_follower of broker 1" in commands.run("trace", "sea/0").stdout


def test_a_note_says_how_far_back_the_trace_reaches(commands: Commands) -> None:
    _report(commands, [e for e in leader_death() if e.service == "broker-1"])
    _report(commands, [state_change(99, "broker-3", Kind.HW_STALLED, Stage.COMPLETED)])
    note = f"broker-3 keeps no events from before {format_time(BEGAN_MS + 99)}"
    assert note in commands.run("trace", "sea/0").stderr
    since = format_time(BEGAN_MS + 99)
    assert note not in commands.run("trace", "sea/0", "--since", since).stderr


def test_a_topic_younger_than_all_rings_has_a_complete_trace(commands: Commands) -> None:
    joined = of_broker(-99, Kind.BROKER_JOINED, 3)
    creation = state_change(-9, "controller-1", Kind.TOPIC_CREATION, Stage.COMPLETED, partition=-1)
    _report(commands, [joined, joined._replace(service="broker-1"), creation, *leader_death()])
    assert "keeps no events from before" not in commands.run("trace", "sea/0").stderr
    assert "keeps no events from before" in commands.run("trace").stderr


def test_without_any_service_the_error_points_to_log_files(commands: Commands) -> None:
    result = commands.run("trace", "sea/0", "--bootstrap", "127.0.0.1:1")
    assert result.exit_code == ExitStatus.UNREACHABLE
    assert "no service of the cluster answers" in result.stderr
    assert "tidelog trace --files" in result.stderr
