"""Converts between etcd's messages and the store's own values. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from aetcd import rpc

from tidelog_runtime.metadata.store import (
    Change,
    Changed,
    CreateRevision,
    Guard,
    InvalidTransactionError,
    KeyValue,
    LeaseLostError,
    Put,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    Transaction,
    TransactionResult,
)

# As the end of a range or a watch: all keys.
_NO_END = b"\0"
_LOWEST_KEY = b"\0"

# etcd understood and answered the request; repeating it would change nothing.
_REFUSALS = frozenset(
    {
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


class CompactedError(StoreError):
    """The requested revision is compacted. Internal to this package."""


def first_key(prefix: str) -> bytes:
    return prefix.encode() or _LOWEST_KEY


def prefix_end(prefix: str) -> bytes:
    """Returns the first key after all keys with the prefix."""
    encoded = prefix.encode()  # UTF-8, in which no byte is 0xff
    return encoded[:-1] + bytes([encoded[-1] + 1]) if encoded else _NO_END


def key_value(message: Any) -> KeyValue:
    return KeyValue(
        message.key.decode(), message.value, message.create_revision, message.mod_revision
    )


def changes(events: Iterable[Any]) -> list[Changed]:
    return [_changed(event.kv, event.type == rpc.Event.PUT) for event in events]


def _changed(message: Any, is_put: bool) -> Changed:
    item = key_value(message)
    return Changed(item.key, item if is_put else None, item.mod_revision)


def transaction_request(transaction: Transaction) -> Any:
    """Converts a transaction. If a guard fails, the same transaction reads every guarded key.

    The message is filled in place: submessages that are made first and then added would be
    copied, and a batch of elections has hundreds of them.
    """
    request = rpc.TxnRequest()
    for guard in transaction.guards:
        _fill_compare(request.compare.add(), guard)
    for change in transaction.changes:
        _fill_operation(request.success.add(), change)
    for key in _guarded_keys(transaction):
        request.failure.add().request_range.key = key.encode()
    return request


def transaction_result(transaction: Transaction, response: Any) -> TransactionResult:
    revision = response.header.revision
    if response.succeeded:
        return TransactionResult(True, revision)
    current: dict[str, KeyValue | None] = {}
    for key, operation in zip(_guarded_keys(transaction), response.responses, strict=True):
        found = operation.response_range.kvs
        current[key] = key_value(found[0]) if found else None
    return TransactionResult(False, revision, current)


def store_error(error: grpc.aio.AioRpcError, address: str) -> StoreError:
    """Returns the store's error for a failed request.

    An error that is not clearly a rejection becomes `StoreUnavailableError`.
    """
    code, details = error.code(), error.details() or "no details"
    if code is grpc.StatusCode.NOT_FOUND and "lease not found" in details:
        return LeaseLostError("the lease of a written key is gone; grant another and write again")
    if code is grpc.StatusCode.OUT_OF_RANGE and "compacted" in details:
        return CompactedError(details)
    # The first message is from etcd's own limit, the second from its gRPC server.
    if "request is too large" in details or "message larger than max" in details:
        return InvalidTransactionError(
            f"etcd at {address} accepts no transaction of this size ({details}); split it"
        )
    if "database space exceeded" in details:
        return StoreFullError(f"etcd at {address} accepts no writes: {details}")
    if code in _REFUSALS:
        return StoreError(f"etcd at {address} rejects the request: {details} ({code.name})")
    return StoreUnavailableError(
        f"etcd at {address} failed the request: {details} ({code.name}); check that it "
        "runs, is reachable and has a leader"
    )


def _guarded_keys(transaction: Transaction) -> list[str]:
    return list(dict.fromkeys(guard.key for guard in transaction.guards))


def _fill_compare(message: Any, guard: Guard) -> None:
    message.result = rpc.Compare.EQUAL
    message.key = guard.key.encode()
    if isinstance(guard, CreateRevision):
        message.target = rpc.Compare.CREATE
        message.create_revision = guard.revision
    else:
        message.target = rpc.Compare.MOD
        message.mod_revision = guard.revision


def _fill_operation(message: Any, change: Change) -> None:
    if isinstance(change, Put):
        put = message.request_put
        put.key, put.value, put.lease = change.key.encode(), change.value, change.lease_id
    else:
        message.request_delete_range.key = change.key.encode()
