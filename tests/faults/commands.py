"""Programs that are run for their effect or output."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from faults.cluster import ClusterFailedError

COMMAND_TIMEOUT_S = 120.0


async def run_command(
    command: Sequence[str],
    *,
    stdin: str = "",
    timeout_s: float = COMMAND_TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The standard output of a program. Raises `ClusterFailedError` with its error output."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        raise ClusterFailedError(f"{command[0]} does not run here: {error}") from error
    try:
        async with asyncio.timeout(timeout_s):
            out, errors = await process.communicate(stdin.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ClusterFailedError(
            f"{' '.join(command)} did not end within {timeout_s:g} s"
        ) from None
    if process.returncode:
        output = errors.decode(errors="replace").strip() or out.decode(errors="replace").strip()
        raise ClusterFailedError(f"{' '.join(command)} ended with {process.returncode}: {output}")
    return out.decode(errors="replace")
