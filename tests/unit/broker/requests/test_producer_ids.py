"""Ids of idempotent producers: no id is given twice."""

import asyncio
import random

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID
from tidelog_broker.requests import producer_ids
from tidelog_broker.requests.producer_ids import (
    BLOCK_SIZE,
    MAX_ATTEMPTS,
    MAX_COUNTED_TOPICS,
    MAX_PRODUCER_EPOCH,
    GivenProducer,
    ProducerIds,
)
from tidelog_runtime.metadata.producer_records import (
    NamedProducer,
    NextProducerId,
    decode_named_producer,
    encode_producer_record,
)
from tidelog_runtime.metadata.store import Transaction, TransactionResult
from unit.broker.broker_parts import KEYS, until, until_idle
from unit.broker.flaky_store import FlakyStore
from unit.metadata.virtual_time import virtual_clock

NAME = "sink-1"


@pytest.fixture
async def store() -> FlakyStore:
    return FlakyStore(virtual_clock())


async def rejection_of(ids: ProducerIds, name: str = "") -> TidelogError:
    with pytest.raises(TidelogError) as raised:
        await ids.handle(name)
    return raised.value


# -- without a name ----------------------------------------------------------------------


async def test_ids_begin_at_1_in_epoch_0(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    assert [await ids.handle("") for _ in range(2)] == [GivenProducer(1, 0), GivenProducer(2, 0)]


async def test_a_block_of_ids_costs_one_write(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    given = [(await ids.handle("")).producer_id for _ in range(BLOCK_SIZE + 1)]
    assert given == list(range(1, BLOCK_SIZE + 2))
    assert len(store.sent) == 2


async def test_ids_in_stock_are_given_while_the_store_is_away(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    stocking = asyncio.create_task(ids.keep_stocked(random.Random(1)))
    await until_idle()
    store.disconnect()
    given = [(await ids.handle("")).producer_id for _ in range(BLOCK_SIZE)]
    assert given == list(range(1, BLOCK_SIZE + 1))
    store.reconnect()
    await until(lambda: len(store.sent) == 2)
    store.disconnect()
    assert (await ids.handle("")).producer_id == BLOCK_SIZE + 1
    stocking.cancel()


async def test_two_brokers_give_different_ids(store: FlakyStore) -> None:
    one, other = ProducerIds(store, KEYS), ProducerIds(store, KEYS)
    given = [(await ids.handle("")).producer_id for ids in (one, other, one, other)]
    assert given == [1, BLOCK_SIZE + 1, 2, BLOCK_SIZE + 2]


async def test_concurrent_requests_get_ids_of_their_own(
    store: FlakyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_ids, "BLOCK_SIZE", 3)
    brokers = [ProducerIds(store, KEYS) for _ in range(3)]
    given = await asyncio.gather(*(brokers[i % 3].handle("") for i in range(30)))
    assert len({producer.producer_id for producer in given}) == 30


async def test_a_block_whose_answer_was_lost_is_never_given(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    store.loses_answers = True
    assert (await rejection_of(ids)).code is ErrorCode.METADATA_STORE_UNAVAILABLE
    store.loses_answers = False
    assert (await ids.handle("")).producer_id == BLOCK_SIZE + 1


async def test_without_the_store_the_rest_of_a_block_is_given_and_then_nothing(
    store: FlakyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_ids, "BLOCK_SIZE", 2)
    ids = ProducerIds(store, KEYS)
    await ids.handle("")
    store.disconnect()
    assert (await ids.handle("")).producer_id == 2
    rejection = await rejection_of(ids)
    assert rejection.code is ErrorCode.METADATA_STORE_UNAVAILABLE
    assert rejection.retriable
    store.reconnect()
    assert (await ids.handle("")).producer_id == 3


class ContendedStore(FlakyStore):
    """Another client always writes first."""

    async def transact(self, transaction: Transaction) -> TransactionResult:
        self.put(KEYS.producer_ids, encode_producer_record(NextProducerId(7)))
        return await super().transact(transaction)


async def test_a_key_under_constant_contention_is_given_up() -> None:
    store = ContendedStore(virtual_clock())
    rejection = await rejection_of(ProducerIds(store, KEYS))
    assert rejection.code is ErrorCode.METADATA_STORE_UNAVAILABLE
    assert "keep changing" in rejection.message
    assert len(store.sent) == MAX_ATTEMPTS


# -- with a name -------------------------------------------------------------------------


async def test_a_name_keeps_its_id_and_each_holder_gets_the_next_epoch(store: FlakyStore) -> None:
    given = [await ProducerIds(store, KEYS).handle(NAME) for _ in range(3)]
    assert [producer.producer_epoch for producer in given] == [0, 1, 2]
    assert len({producer.producer_id for producer in given}) == 1
    assert given[0].producer_id > FIRST_NAMED_PRODUCER_ID


async def test_names_have_ids_of_their_own(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    given = [await ids.handle(name) for name in ("a", "b", "")]
    assert len({producer.producer_id for producer in given}) == 3


@pytest.mark.rule("name-holder-fences-previous")
async def test_two_clients_that_take_a_name_at_once_get_different_epochs(store: FlakyStore) -> None:
    brokers = [ProducerIds(store, KEYS) for _ in range(4)]
    given = await asyncio.gather(*(ids.handle(NAME) for ids in brokers))
    assert sorted(producer.producer_epoch for producer in given) == [0, 1, 2, 3]
    assert len({producer.producer_id for producer in given}) == 1


async def test_an_epoch_whose_answer_was_lost_is_never_given(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    await ids.handle(NAME)
    store.loses_answers = True
    assert (await rejection_of(ids, NAME)).code is ErrorCode.METADATA_STORE_UNAVAILABLE
    store.loses_answers = False
    assert (await ids.handle(NAME)).producer_epoch == 2


async def test_the_store_has_the_holder_of_the_name(store: FlakyStore) -> None:
    given = await ProducerIds(store, KEYS).handle(NAME)
    held = decode_named_producer(store.item(KEYS.producer(NAME)).value)
    assert held == NamedProducer(given.producer_id, given.producer_epoch)


async def test_a_name_without_an_epoch_left_is_rejected(store: FlakyStore) -> None:
    held = NamedProducer(FIRST_NAMED_PRODUCER_ID + 1, MAX_PRODUCER_EPOCH)
    store.put(KEYS.producer(NAME), encode_producer_record(held))
    rejection = await rejection_of(ProducerIds(store, KEYS), NAME)
    assert rejection.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["a b", "a/b", "x" * 201, "ä", "a\n"])
async def test_an_invalid_name_is_rejected_before_the_store_is_asked(
    store: FlakyStore, name: str
) -> None:
    rejection = await rejection_of(ProducerIds(store, KEYS), name)
    assert rejection.code is ErrorCode.INVALID_REQUEST
    assert store.sent == []


async def test_a_name_may_have_200_characters(store: FlakyStore) -> None:
    assert (await ProducerIds(store, KEYS).handle("Az9._-" + "x" * 194)).producer_epoch == 0


# -- with an epoch that the client chooses -----------------------------------------------


@pytest.mark.rule("client-names-producer-epoch")
async def test_a_client_that_names_an_epoch_gets_it_at_every_request(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    first = await ids.handle(NAME, 7)
    assert first.producer_epoch == 7
    assert [await ids.handle(NAME, 7) for _ in range(2)] == [first, first]
    assert await ids.handle(NAME, 9) == GivenProducer(first.producer_id, 9)


async def test_an_older_epoch_is_rejected(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    await ids.handle(NAME, 7)
    with pytest.raises(TidelogError) as raised:
        await ids.handle(NAME, 6)
    assert raised.value.code is ErrorCode.FENCED_PRODUCER_EPOCH
    assert f"producer {NAME!r} (id " in raised.value.message


async def test_without_a_named_epoch_the_next_is_given(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    first = await ids.handle(NAME, 7)
    assert await ids.handle(NAME) == GivenProducer(first.producer_id, 8)


@pytest.mark.parametrize(("name", "epoch"), [("", 3), (NAME, -1)])
async def test_an_invalid_epoch_is_rejected(store: FlakyStore, name: str, epoch: int) -> None:
    with pytest.raises(TidelogError) as raised:
        await ProducerIds(store, KEYS).handle(name, epoch)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


async def test_clients_of_the_same_epoch_get_the_partition_count_that_was_set_first(
    store: FlakyStore,
) -> None:
    one, other = ProducerIds(store, KEYS), ProducerIds(store, KEYS)
    assert (await one.handle(NAME, 7, {"sea": 2})).partition_counts == {"sea": 2}
    assert (await other.handle(NAME, 7, {"land": 1, "sea": 3})).partition_counts == {
        "land": 1,
        "sea": 2,
    }
    assert (await one.handle(NAME, 7, {"land": 4})).partition_counts == {"land": 1}


@pytest.mark.rule("repeated-micro-batch-placed-alike")
async def test_clients_that_set_a_partition_count_at_once_all_get_the_same(
    store: FlakyStore,
) -> None:
    brokers = [ProducerIds(store, KEYS) for _ in range(4)]
    given = await asyncio.gather(
        *(ids.handle(NAME, 7, {"sea": n + 2}) for n, ids in enumerate(brokers))
    )
    assert len({producer.partition_counts["sea"] for producer in given}) == 1


async def test_the_next_epoch_has_its_own_partition_counts(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    await ids.handle(NAME, 7, {"sea": 2})
    assert (await ids.handle(NAME, 8, {"sea": 3})).partition_counts == {"sea": 3}


@pytest.mark.parametrize(
    ("epoch", "counts"),
    [
        (None, {"sea": 2}),
        (7, {"sea": 0}),
        (7, {"": 2}),
        (7, {f"t{n}": 1 for n in range(MAX_COUNTED_TOPICS + 1)}),
    ],
)
async def test_an_invalid_partition_count_is_rejected(
    store: FlakyStore, epoch: int | None, counts: dict[str, int]
) -> None:
    with pytest.raises(TidelogError, match="partition_counts") as raised:
        await ProducerIds(store, KEYS).handle(NAME, epoch, counts)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
