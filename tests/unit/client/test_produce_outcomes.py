"""`outcome_unknown` is true for exactly those records that may be in the log."""

import asyncio

import pytest

from tidelog.client import Producer
from tidelog.errors import ErrorCode, TidelogError
from unit.client.fake_broker import Late, Unanswered
from unit.client.idempotent_world import World, milliseconds, story
from unit.client.test_accumulator import P0, Bench

# A broker that answers with one of these may have appended the batch before.
IN_DOUBT = {ErrorCode.INTERNAL, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_CHANGED}
# Errors of the client: no broker sends them.
OWN = {ErrorCode.CLIENT_CLOSED, ErrorCode.CLIENT_FORKED}


def outcome(bench: Bench) -> TidelogError:
    [(_, error)] = bench.settled
    assert isinstance(error, TidelogError)
    return error


@pytest.mark.parametrize("code", set(ErrorCode) - OWN, ids=lambda code: code.name)
def test_the_flag_says_for_each_error_of_a_broker_whether_the_record_may_be_written(
    code: ErrorCode,
) -> None:
    bench = Bench()
    bench.seal(P0, b"x", deadline_ms=1_000)
    bench.fail(bench.drain_group(), TidelogError(code, "refused"), now_ms=0)
    bench.accumulator.expire(1_000)
    if not bench.settled:
        pytest.fail(f"{code.name} left the batch without an outcome")
    if isinstance(bench.settled[0][1], TidelogError):
        assert outcome(bench).outcome_unknown == (code in IN_DOUBT)
    else:
        assert code is ErrorCode.DUPLICATE_SEQUENCE


@pytest.mark.parametrize("first", IN_DOUBT, ids=lambda code: code.name)
@pytest.mark.parametrize("last", set(ErrorCode) - OWN, ids=lambda code: code.name)
def test_later_errors_do_not_clear_the_doubt(first: ErrorCode, last: ErrorCode) -> None:
    bench = Bench()
    bench.seal(P0, b"x", deadline_ms=1_000)
    bench.fail(bench.drain_group(), TidelogError(first, "no answer"), now_ms=0)
    if not bench.settled:
        bench.fail(bench.drain_group(500), TidelogError(last, "refused"), now_ms=500)
    at_once = bool(bench.settled)
    bench.accumulator.expire(1_000)
    if isinstance(bench.settled[0][1], TidelogError):
        assert outcome(bench).outcome_unknown
        # Nothing has timed out if an answer ended it.
        assert not at_once or outcome(bench).code in (first, last)


@pytest.mark.parametrize("code", set(ErrorCode), ids=lambda code: code.name)
def test_an_unsent_record_is_not_written_however_the_producer_ends(code: ErrorCode) -> None:
    bench = Bench()
    bench.seal(P0, b"x")
    bench.accumulator.fail_all(TidelogError(code, "over", outcome_unknown=True))
    assert not outcome(bench).outcome_unknown
    assert outcome(bench).code is code


def test_without_a_leader_nothing_was_written() -> None:
    bench = Bench()
    bench.leaders.clear()
    bench.seal(P0, b"x", deadline_ms=10)
    assert not bench.drain()
    bench.accumulator.expire(10)
    error = outcome(bench)
    assert (error.code, error.outcome_unknown) == (ErrorCode.REQUEST_TIMED_OUT, False)
    assert "it was not" in error.message


@story
async def test_where_no_broker_answers_nothing_was_written(world: World) -> None:
    for broker in world.cluster.brokers.values():
        broker.alive = False
    async with world.producer() as producer:
        with pytest.raises(TidelogError) as caught:
            await producer.send("sea", b"x")
    assert (caught.value.code, caught.value.outcome_unknown) == (ErrorCode.REQUEST_TIMED_OUT, False)


async def _closed_while_waiting(producer: Producer) -> TidelogError:
    sent = await producer.send("sea", b"x")
    await milliseconds(20)
    await producer.close(flush=False)
    error = sent.exception()
    assert isinstance(error, TidelogError)
    return error


@story
async def test_a_sent_record_without_an_answer_is_in_doubt_when_the_producer_closes(
    world: World,
) -> None:
    producer = world.producer(idempotent=False)
    await producer.partitions_of("sea")
    world.script(Late(5_000))
    assert (await _closed_while_waiting(producer)).outcome_unknown


@story
async def test_an_unsent_record_is_known_not_to_be_written_when_the_producer_closes(
    world: World,
) -> None:
    producer = world.producer(linger_ms=10_000, batch_bytes=1 << 16)
    await producer.partitions_of("sea")
    assert not (await _closed_while_waiting(producer)).outcome_unknown


@story
async def test_a_record_after_the_end_of_a_named_producer_is_not_written(world: World) -> None:
    async with world.producer(producer_name="pilot", delivery_timeout_ms=1_000) as producer:
        await (await producer.send("sea", b"x"))
        world.script(*[Unanswered(50)] * 40)
        sent = await producer.send("sea", b"y")
        await asyncio.wait([sent])
        error = sent.exception()
        assert isinstance(error, TidelogError)
        assert error.outcome_unknown
        with pytest.raises(TidelogError) as caught:
            await producer.send("sea", b"z")
        assert not caught.value.outcome_unknown
