"""The form of a log line."""

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
import structlog

from tidelog.state_changes import json_form
from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog_runtime.telemetry.logging import Line, configure_logging, write_lines
from tidelog_runtime.telemetry.memory_errors import MemoryErrorFilter

CANNOT_START_THREAD = "can't start new thread"


class FixedClock:
    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 1_700_000_000_042


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_line_is_json_with_time_level_service_and_event_first(output: io.StringIO) -> None:
    configure_logging("broker", broker_id=3, clock=FixedClock(), stream=output)

    structlog.get_logger().info("leader_elected", partitions=2)

    line = json.loads(output.getvalue())
    assert line == {
        "time": "2023-11-14T22:13:20.042Z",
        "level": "info",
        "service": "broker",
        "event": "leader_elected",
        "broker_id": 3,
        "partitions": 2,
    }
    assert list(line)[:4] == ["time", "level", "service", "event"]


def test_a_logger_made_before_the_configuration_follows_it(output: io.StringIO) -> None:
    logger = structlog.get_logger()
    configure_logging("broker", stream=output)

    logger.info("started")

    assert json.loads(output.getvalue())["service"] == "broker"


def test_a_line_below_the_level_is_left_out(output: io.StringIO) -> None:
    configure_logging("broker", log_level="warning", stream=output)

    structlog.get_logger().info("quiet")

    assert output.getvalue() == ""


def test_standard_library_loggers_have_the_same_form(output: io.StringIO) -> None:
    configure_logging("controller", stream=output)

    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("trouble with %s", "it")

    line = json.loads(output.getvalue())
    assert (line["event"], line["level"], line["logger"]) == (
        "trouble with it",
        "warning",
        "some.library",
    )
    assert line["service"] == "controller"


def test_an_exception_is_one_line_with_its_traceback(output: io.StringIO) -> None:
    configure_logging("broker", stream=output)

    try:
        raise ValueError("no such thing")
    except ValueError:
        structlog.get_logger().exception("failed")

    assert len(output.getvalue().splitlines()) == 1
    assert "ValueError: no such thing" in json.loads(output.getvalue())["exception"]


def test_the_console_form_is_for_people(output: io.StringIO) -> None:
    configure_logging("broker", log_format="console", clock=FixedClock(), stream=output)

    structlog.get_logger().info("started", address="127.0.0.1:7501")

    assert "started" in output.getvalue()
    assert "address=127.0.0.1:7501" in output.getvalue()
    assert "{" not in output.getvalue()


def test_the_console_form_shows_the_event_before_its_details(
    output: io.StringIO,
) -> None:
    configure_logging("broker-2", log_format="console", clock=FixedClock(), stream=output)
    change = StateChange(
        1_700_000_000_042,
        "broker-2",
        Kind.ISR_SHRINK,
        Stage.COMPLETED,
        Cause.LAG_TIME,
        "b2-7-1",
        "sea",
        "id",
        3,
        leader_epoch=4,
        revision=99,
        details={"isr": [1, 2]},
    )
    event = json_form.to_fields(change)
    structlog.get_logger().info(
        json_form.EVENT, time=json_form.format_time(change.time_ms), service=change.service, **event
    )
    line, details = output.getvalue().split(" details=")
    assert line.replace("[info     ] ", "").split() == [
        "2023-11-14T22:13:20.042Z",
        "broker-2",
        "state_change",
        "kind=isr_shrink",
        "stage=completed",
        "cause=lag_time",
        "topic=sea",
        "partition=3",
        "change_id=b2-7-1",
        "topic_id=id",
        "leader_epoch=4",
        "revision=99",
    ]
    assert details == "{'isr': [1, 2]}\n"


def test_a_full_disk_of_the_log_ends_nothing(output: io.StringIO) -> None:
    # The fixture restores the configuration.
    del output
    full = open("/dev/full", "w", buffering=1)  # noqa: PTH123, SIM115 - closing it fails
    configure_logging("broker-1", stream=full)
    structlog.get_logger().info("started")
    write_lines([Line("2026-11-27T00:00:00.000Z", "info", "broker-1", "started", {})])
    logging.getLogger("asyncio").warning("slow")
    with suppress(OSError):
        full.close()


def test_repeated_memory_errors_of_libraries_are_two_lines_without_a_traceback(
    output: io.StringIO,
) -> None:
    configure_logging("broker", stream=output)

    def fail() -> None:
        try:
            raise MemoryError
        except MemoryError:
            logging.getLogger("grpc").exception("Unexpected [MemoryError]")

    for _ in range(200):
        fail()
    logging.getLogger("grpc").error("another one")

    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [line["event"] for line in lines] == [
        "out_of_memory",
        "Unexpected [MemoryError]",
        "another one",
    ]
    assert "may not use more memory" in lines[0]["why"]
    assert re.fullmatch(r"test_logging\.py:\d+ fail", lines[1]["raised"])
    assert "Traceback" not in output.getvalue()


@pytest.mark.parametrize("given", ["the error", "its triple", "the one being handled"])
def test_a_memory_error_is_logged_with_its_message_instead_of_a_traceback(
    output: io.StringIO, given: str
) -> None:
    configure_logging("broker", stream=output)
    for raised in (MemoryError(), ValueError("odd")):
        try:
            raise raised
        except Exception as error:
            triple = (type(error), error, error.__traceback__)
            exc_info = {"the error": error, "its triple": triple}.get(given, True)
            structlog.get_logger().warning("failed", exc_info=exc_info)

    short, other = (json.loads(line) for line in output.getvalue().splitlines())
    assert short["why"].startswith("MemoryError: the process may not use more memory")
    assert "exception" not in short
    assert re.fullmatch(r"test_logging\.py:\d+ test_a_memory_error\w+", short["raised"])
    assert "Traceback" in other["exception"]
    assert not {"why", "raised"} & other.keys()


@pytest.mark.parametrize("raised", [MemoryError("length -1"), RuntimeError(CANNOT_START_THREAD)])
def test_a_memory_error_in_a_group_is_added_to_the_reason_that_a_line_has(
    output: io.StringIO, raised: Exception
) -> None:
    configure_logging("broker", stream=output)
    group = ExceptionGroup("tasks", [ExceptionGroup("task", [raised])])
    structlog.get_logger().warning("failed", why="no answer", exc_info=group)
    mixed = ExceptionGroup("tasks", [raised, ValueError("odd")])
    structlog.get_logger().warning("failed", exc_info=mixed)

    short, other = (json.loads(line) for line in output.getvalue().splitlines())
    name = type(raised).__name__
    assert short["why"].startswith(f"no answer; {name}: the process may not use more memory")
    assert short["raised"] == str(raised)
    assert "exception" not in short
    assert "ValueError: odd" in other["exception"]


def test_continuing_memory_errors_are_logged_rarely() -> None:
    now, logged = [0.0], []
    passes = MemoryErrorFilter(lambda: logged.append(now[0]), lambda: now[0])
    kept = []
    for second in range(25):
        now[0] = float(second)
        error = MemoryError()
        record = logging.LogRecord(
            "grpc", logging.ERROR, "", 0, "failed", None, (MemoryError, error, None)
        )
        if passes.filter(record):
            kept.append(second)
    assert kept == [0, 10, 20]
    assert logged == [0.0]
