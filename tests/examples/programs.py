"""The example clients, each built by the tools of its language and run as a program."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from integration.waiting import until_true

DIRECTORY = Path(__file__).parents[2] / "examples"
# The first build fetches its dependencies; later ones have nearly all of them.
BUILD_SECONDS = 600
RUN_SECONDS = 60.0
END_SECONDS = 10.0
NO_KEY = "-"


class Line(NamedTuple):
    """The printed line of an acknowledged or a read record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes

    @classmethod
    def parse(cls, line: bytes) -> Line:
        partition, offset, key, value = line.removesuffix(b"\n").split(b"\t", 3)
        return cls(int(partition), int(offset), None if key == NO_KEY.encode() else key, value)


@dataclass(frozen=True, slots=True)
class Program:
    """Commands are run in the example's own directory."""

    language: str
    build_commands: Sequence[Sequence[str]]
    command: Sequence[str]

    @property
    def directory(self) -> Path:
        return DIRECTORY / self.language

    def build(self) -> None:
        """Raises AssertionError with what the tools wrote."""
        # The build is proved by its result; it may run at low priority.
        environment = {**os.environ, "GOFLAGS": "-buildvcs=false -p=1"}
        for command in self.build_commands:
            done = subprocess.run(
                ["nice", "-n", "10", *command],
                cwd=self.directory,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=BUILD_SECONDS,
                check=False,
            )
            assert done.returncode == 0, f"{self.language}: {' '.join(command)}\n{done.stdout}"

    async def run(self, *arguments: str, given: bytes = b"") -> list[Line]:
        """The complete output, once the program has ended with status 0."""
        status, output, errors = await self.run_to_end(*arguments, given=given)
        assert status == 0, f"{self.language} {' '.join(arguments)}: {errors}"
        return [Line.parse(line) for line in output.splitlines(keepends=True)]

    async def run_to_end(self, *arguments: str, given: bytes = b"") -> tuple[int, bytes, str]:
        """Exit status, standard output and standard error."""
        process = await self.start(*arguments)
        try:
            async with asyncio.timeout(RUN_SECONDS):
                output, errors = await process.communicate(given)
        finally:
            await _end(process)
        assert process.returncode is not None
        return process.returncode, output, errors.decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self.command,
            *arguments,
            cwd=self.directory,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


PROGRAMS = (
    Program("go", [["make"]], ["bin/tidelog-example"]),
    Program(
        "java",
        [["mvn", "--quiet", "--batch-mode", "package"]],
        ["java", "-jar", "target/tidelog-example.jar"],
    ),
    Program(
        "typescript",
        [["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"], ["npm", "run", "build"]],
        ["node", "dist/src/main.js"],
    ),
)


@dataclass
class Running:
    """A program that has been started; `lines` are those that it has printed so far."""

    process: asyncio.subprocess.Process
    lines: list[Line] = field(default_factory=list)

    async def gather(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(Line.parse(line))

    async def feed(self, lines: Sequence[str]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        await self.process.stdin.drain()

    async def end_of_input(self) -> int:
        """Closes its standard input; returns the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(RUN_SECONDS):
            return await self.process.wait()

    async def prints(self, count: int) -> None:
        """Returns once so many lines were printed; fails at once if the program has ended."""
        await until_true(
            lambda: len(self.lines) >= count or self.process.returncode is not None,
            f"{count} lines are printed",
            RUN_SECONDS,
        )
        assert len(self.lines) >= count, f"it ended with status {self.process.returncode}"


@asynccontextmanager
async def running(program: Program, *arguments: str) -> AsyncIterator[Running]:
    """The program; on exit it is killed if it still runs, and its error output is shown."""
    process = await program.start(*arguments)
    started = Running(process)
    gathering = asyncio.create_task(started.gather())
    try:
        yield started
    except AssertionError as error:
        await _end(process)
        assert process.stderr is not None
        error.add_note(f"{program.language} wrote: {(await process.stderr.read()).decode()}")
        raise
    finally:
        await _end(process)
        async with asyncio.timeout(END_SECONDS):
            await gathering


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
