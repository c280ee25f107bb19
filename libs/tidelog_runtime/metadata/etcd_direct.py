"""A put to etcd without an event loop, for a process whose loop is blocked."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from aetcd import rpc

from tidelog_runtime.metadata.store import StoreUnavailableError

TIMEOUT_SECONDS = 2.0


def put_directly(endpoints: Sequence[str], key: str, value: bytes, lease_id: int) -> None:
    """Puts the key, from any thread. Blocks for at most TIMEOUT_SECONDS per endpoint.

    The put may be made twice. Raises `StoreUnavailableError` if no endpoint accepts it.
    """
    request = rpc.PutRequest(key=key.encode(), value=value, lease=lease_id)
    problem = ""
    for address in endpoints:
        with grpc.insecure_channel(address) as channel:
            try:
                rpc.KVStub(channel).Put(request, timeout=TIMEOUT_SECONDS)
            except grpc.RpcError as error:
                problem = f"{address}: {error}"
            else:
                return
    raise StoreUnavailableError(f"no endpoint of etcd takes a put ({problem})")
