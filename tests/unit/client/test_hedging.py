"""One request to several services, and the results of those that do not win."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from tidelog.client.hedging import first_answer


class _WrongError(Exception):
    pass


async def test_an_error_that_arrives_with_the_first_answer_is_retrieved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both tasks are done before either result is read; the answer is read first."""
    both = asyncio.Event()

    async def ask(address: str) -> str:
        if address == "fails":
            both.set()
            raise _WrongError
        await both.wait()
        return address

    answer, failures = await first_answer(["answers", "fails"], ask, 0, (_WrongError,))
    assert (answer, failures) == ("answers", [])
    gc.collect()
    assert _unseen(caplog) == []


async def test_errors_of_abandoned_tasks_are_retrieved(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(address: str) -> str:
        if address == "answers":
            return address
        try:
            await asyncio.sleep(60)
        finally:
            raise _WrongError

    answer, _ = await first_answer(["hangs", "answers"], ask, 0, (_WrongError,))
    assert answer == "answers"
    gc.collect()
    assert _unseen(caplog) == []


async def test_of_two_simultaneous_errors_both_are_raised() -> None:
    both = asyncio.Event()

    async def ask(address: str) -> str:
        if address == "second":
            both.set()
        await both.wait()
        raise _WrongError(address)

    answer, failures = await first_answer(["first", "second"], ask, 0, (_WrongError,))
    assert answer is None
    assert [str(failure) for failure in failures] == ["first", "second"]


async def test_an_unexpected_error_is_raised_and_the_others_are_retrieved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    both = asyncio.Event()

    async def ask(address: str) -> str:
        if address == "second":
            both.set()
        await both.wait()
        raise (KeyError if address == "first" else _WrongError)

    with pytest.raises(KeyError):
        await first_answer(["first", "second"], ask, 0, (_WrongError,))
    gc.collect()
    assert _unseen(caplog) == []


def _unseen(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Unretrieved errors of tasks of these tests; tasks of other tests may be collected now,
    too.
    """
    messages = (r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR)
    return [message for message in messages if "test_hedging.py" in message]
