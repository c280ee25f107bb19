"""For all unit tests."""

from __future__ import annotations

import functools

import typer.testing

# What a process does once takes 60 ms for `tidelog`, which tests run a thousand times.
typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]
