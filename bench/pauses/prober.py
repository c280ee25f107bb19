"""Asks a service for its health, over and over, in a process of its own: an answer that comes late
says how long the service's event loop did nothing else.

`python -m bench.pauses.prober ADDRESS|URL [PID]`: a line for each answer until standard input ends:
its time, how long it took, and for how long the service's event loop was ready to run meanwhile and
had no processor, all in seconds. The last is 0 without the PID of the service."""

from __future__ import annotations

import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

PAUSE_S = 0.002


def main(target: str, pid: str = "") -> None:
    ask = over_http(target) if target.startswith("http") else over_grpc(target)
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    ask()
    while not ended.is_set():
        waited_before = _waited_s(pid)
        began = time.monotonic()
        ask()
        took = time.monotonic() - began
        waited = min(_waited_s(pid) - waited_before, took)
        sys.stdout.write(f"{began:.6f} {took:.6f} {waited:.6f}\n")
        sys.stdout.flush()
        time.sleep(PAUSE_S)


def _waited_s(pid: str) -> float:
    """Of the main thread, since it began, as the kernel counts it."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9 if pid else 0.0


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
    main(*sys.argv[1:])
