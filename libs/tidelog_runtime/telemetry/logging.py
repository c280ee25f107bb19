"""Log lines: JSON on stderr, one object a line; or coloured text for people.

Each line has `time` (UTC, milliseconds), `level`, `service` and `event`, followed by bound and
given fields. Lines of libraries that use the standard library's logging have the same form, and
are written only from WARNING on.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, TextIO, cast

import structlog
from structlog.dev import Column, ConsoleRenderer, KeyValueColumnFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from tidelog.state_changes.json_form import format_time
from tidelog_runtime.clock import Clock, SystemClock
from tidelog_runtime.telemetry.memory_errors import MemoryErrorFilter, drop_memory_traceback

_LEADING_KEYS = ("time", "level", "service", "event")
# For people: kind and subject of a state change first, then its numbers, then the rest.
_CONSOLE_KEYS = (*_LEADING_KEYS, "kind", "stage", "cause", "topic", "partition", "broker")
_CONSOLE_LAST_KEYS = ("details",)
_SERVICE_WIDTH = 13


def configure_logging(
    service: str,
    *,
    log_level: str = "info",
    log_format: str = "json",
    clock: Clock | None = None,
    stream: TextIO | None = None,
    **bound: object,
) -> None:
    """Configures logging; the composition root calls it once.

    - `bound`: fields of every line, e.g. `broker_id=3`.
    """
    output = cast(TextIO, _Lossy(stream if stream is not None else sys.stderr))
    level = logging.getLevelNamesMapping()[log_level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        drop_memory_traceback,
        _identify({"service": service, **bound}),
        _timestamp(clock if clock is not None else SystemClock()),
    ]
    renderers = (
        _console_renderers(output)
        if log_format == "console"
        else _json_renderers(_JsonLines(output, level, bound))
    )
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(output),
        # Loggers that modules made at import must follow a later configuration.
        cache_logger_on_first_use=False,
    )
    _route_standard_logging(shared, renderers, output, level)
    # gRPC's core writes its own lines past every handler. All that matters in them also arrives as
    # a status or an exception, which its handler logs once.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


class Line(NamedTuple):
    """A line with its own time (in the form of `format_time`) and service.

    - `level`: "info" or "warning".
    """

    time: str
    level: str
    service: str
    event: str
    fields: Mapping[str, object]


def write_lines(lines: Iterable[Line]) -> None:
    """Writes lines as a logger does, but without the caller's context variables.

    JSON lines are written in one piece, and each takes a tenth of the time of a logger call.
    """
    match structlog.get_config()["processors"]:
        case [*_, _JsonLines() as last]:
            last.write(lines)
            return
    log = structlog.get_logger()
    for line in lines:
        write = getattr(log, line.level)
        write(line.event, time=line.time, service=line.service, **line.fields)


class _Lossy:
    """An output that drops lines instead of raising errors, so that they end no service.

    Such errors come from a full disk or a pipe without a reader. A broker's reaction to a full
    disk of its own must not depend on the disk of its log.
    """

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._output.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._output.flush()

    def isatty(self) -> bool:
        return self._output.isatty()


class _JsonLines:
    """The last of the processors if lines are JSON."""

    def __init__(self, output: TextIO, level: int, bound: Mapping[str, object]) -> None:
        self._output = output
        self._level = level
        self._bound = bound
        # Shared, because `json.dumps` makes a new encoder for each line.
        self._encode = json.JSONEncoder(default=str, ensure_ascii=False).encode

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> str:
        return self._encode(event)

    def write(self, lines: Iterable[Line]) -> None:
        levels = logging.getLevelNamesMapping()
        selected = [line for line in lines if levels[line.level.upper()] >= self._level]
        if selected:
            self._output.write(
                "".join(f"{self._encode(self._object(line))}\n" for line in selected)
            )
            self._output.flush()

    def _object(self, line: Line) -> dict[str, object]:
        named = dict(zip(_LEADING_KEYS, line, strict=False))
        return {**named, **self._bound, **line.fields}


def _json_renderers(last: _JsonLines) -> list[Processor]:
    return [structlog.processors.format_exc_info, _order_keys, last]


def _console_renderers(output: TextIO) -> list[Processor]:
    colors = output.isatty()
    renderer = ConsoleRenderer(timestamp_key="time", colors=colors, sort_keys=False)
    styles = ConsoleRenderer.get_default_column_styles(colors)
    service = KeyValueColumnFormatter(
        key_style=None,
        value_style=styles.logger_name,
        reset_style=styles.reset,
        value_repr=str,
        width=_SERVICE_WIDTH,
    )
    columns = renderer.columns
    before = [column.key for column in columns].index("event")
    renderer.columns = [*columns[:before], Column("service", service), *columns[before:]]
    return [_order_for_people, renderer]


def _identify(identity: dict[str, object]) -> Processor:
    def processor(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {**identity, **event}

    return processor


def _timestamp(clock: Clock) -> Processor:
    def processor(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        # A state change has a time of its own, earlier than that of its line.
        if "time" not in event:
            event["time"] = format_time(clock.wall_ms())
        return event

    return processor


def _order_keys(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Puts the same keys first on each line, so that lines can be read in columns."""
    leading = {key: event.pop(key) for key in _LEADING_KEYS if key in event}
    return {**leading, **event}


def _order_for_people(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    leading = {key: event.pop(key) for key in _CONSOLE_KEYS if key in event}
    last = {key: event.pop(key) for key in _CONSOLE_LAST_KEYS if key in event}
    return {**leading, **event, **last}


def _log_memory_shortage() -> None:
    structlog.get_logger().critical(
        "out_of_memory",
        why="the process may not use more memory: requests fail, and it may end at any moment",
        remedy="raise its limit (ulimit -v, or that of its container), or give it fewer "
        "partitions and smaller requests",
    )


def _route_standard_logging(
    shared: list[Processor], renderers: list[Processor], output: TextIO, level: int
) -> None:
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    handler.addFilter(MemoryErrorFilter(_log_memory_shortage))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))
