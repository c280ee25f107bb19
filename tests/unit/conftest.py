"""Fixtures of all unit tests."""

from __future__ import annotations

import functools

import typer.testing

# Start-up work of a process takes 60 ms for `tidelog`, and tests run it a thousand times.
typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]
