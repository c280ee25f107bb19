"""Asks a service for its health, over and over, in a process of its own: an answer that comes late
says how long the service's event loop did nothing else.

`python -m bench.pauses.prober ADDRESS|URL`: a line for each answer until standard input ends: when
it was asked for, how long it took, and 0 (what the service waited for a processor is not seen from
outside), in seconds."""

from __future__ import annotations

import sys
import threading
import time
import urllib.request
from collections.abc import Callable

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

PAUSE_S = 0.002


def main(target: str) -> None:
    ask = over_http(target) if target.startswith("http") else over_grpc(target)
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    ask()
    while not ended.is_set():
        began = time.monotonic()
        ask()
        took = time.monotonic() - began
        sys.stdout.write(f"{began:.6f} {took:.6f} 0\n")
        sys.stdout.flush()
        time.sleep(PAUSE_S)


def over_grpc(address: str) -> Callable[[], object]:
    stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(address))
    request = health_pb2.HealthCheckRequest()
    return lambda: stub.Check(request, timeout=30)


def over_http(url: str) -> Callable[[], object]:
    def ask() -> object:
        with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
            return answer.read()

    return ask


if __name__ == "__main__":
    main(sys.argv[1])
