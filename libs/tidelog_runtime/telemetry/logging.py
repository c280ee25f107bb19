"""Log lines: JSON on stderr, one object a line; or coloured text for people.

Each line has `time` (UTC, milliseconds), `level`, `service` and `event`, then whatever
was bound or given. Libraries that use the standard library's logging come out in the
same form, and only from WARNING on.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO

import structlog
from structlog.dev import Column, ConsoleRenderer, KeyValueColumnFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from tidelog.state_changes.json_form import format_time
from tidelog_runtime.clock import Clock, SystemClock

_LEADING_KEYS = ("time", "level", "service", "event")
# For people: what of a state change happened and to what, then its numbers, then the rest.
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
    """Called once, by the composition root. `bound` (broker_id=3) is on every line."""
    output = stream if stream is not None else sys.stderr
    level = logging.getLevelNamesMapping()[log_level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _identify({"service": service, **bound}),
        _timestamp(clock if clock is not None else SystemClock()),
    ]
    renderers = _console_renderers(output) if log_format == "console" else _json_renderers()
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(output),
        # Loggers that modules made at import must follow a later configuration.
        cache_logger_on_first_use=False,
    )
    _route_standard_logging(shared, renderers, output, level)
    # gRPC's core writes its own lines, past every handler; what matters of it comes as
    # a status or an exception, and is logged once, by whoever handles that.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _json_renderers() -> list[Processor]:
    return [
        structlog.processors.format_exc_info,
        _order_keys,
        structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
    ]


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
        # A state change is told before its line is written, and says when.
        if "time" not in event:
            event["time"] = format_time(clock.wall_ms())
        return event

    return processor


def _order_keys(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The same keys first on each line, so that a person can read down a column."""
    leading = {key: event.pop(key) for key in _LEADING_KEYS if key in event}
    return {**leading, **event}


def _order_for_people(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    leading = {key: event.pop(key) for key in _CONSOLE_KEYS if key in event}
    last = {key: event.pop(key) for key in _CONSOLE_LAST_KEYS if key in event}
    return {**leading, **event, **last}


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
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))
