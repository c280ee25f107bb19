"""Help text after the options: examples, the output of `--json`, exit statuses. Pure functions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tidelog.cli.exit_status import EPILOG

_WIDTH = 78
EXAMPLES = "Examples:"

PLAN_FIELDS = (
    "plan: move_count, replicas_added, leaders_changed, minimum_replicas_added (null: the request "
    "names the moves), warnings, digest, brokers [broker_id, replicas_before, replicas_after, "
    "leaders_before, leaders_after] and, in a dry run, moves [topic, topic_id, partition, "
    "original, target]."
)
OPERATION_FIELDS = (
    "operation_id, kind, state (running, cancelling, done, cancelled, failed), reason, request, "
    "requested_by, requested_from, requested_at_ms, ended_at_ms (0: it has not ended), trace_id, "
    "revision and progress: moves, moves_done, moves_active, moves_dropped, replicas_to_add, "
    "replicas_added, bytes_to_copy, bytes_copied, bytes_per_second, moves_unmeasured, "
    "estimated_end_ms (0: not known)."
)
BEGUN_FIELDS = (
    "dry_run, operation (null in a dry run) and plan.",
    f"Of operation: {OPERATION_FIELDS}",
    f"Of {PLAN_FIELDS}",
)
ERROR_FIELDS = "error (null, or code, message, retriable, outcome_unknown)"


def help_epilog(
    *examples: str,
    json: str | Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Returns a command's epilog. \\b keeps typer from joining the lines that follow."""
    parts = ["\b\n" + "\n".join((EXAMPLES, *(f"  {example}" for example in examples)))]
    fields = (json,) if isinstance(json, str) else json
    if fields:
        lines = [line for text in fields for line in _wrapped(text)]
        parts.append("\b\n" + "\n".join(("With --json:", *lines)))
    if environment:
        lines = [line for name, text in environment.items() for line in _wrapped(f"{name}: {text}")]
        parts.append("\b\n" + "\n".join(("Environment:", *lines)))
    return "\n\n".join((*parts, EPILOG))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )
