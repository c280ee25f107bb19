"""Runs `tidelog trace`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any


async def traced(*arguments: str) -> list[dict[str, Any]]:
    """The output of `tidelog trace --json`: changes, in causal order."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tidelog.cli", "trace", "--json", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return [json.loads(line) for line in out.splitlines()]


def stages_of(change: dict[str, Any]) -> list[tuple[str, str, int | None, str]]:
    """Service, kind, broker, stage."""
    return [(s["service"], s["kind"], s.get("broker"), s["stage"]) for s in change["stages"]]
