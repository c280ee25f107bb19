"""The one gRPC call of a container's health check, frame by frame."""

from __future__ import annotations

import pytest
from grpc_health.v1 import health_pb2

from tidelog_runtime.health_check import (
    EXIT_USAGE,
    LISTEN_VARIABLE,
    HealthExchange,
    UnhealthyError,
    check_request,
    frame,
    main,
    serving_status,
    target_address,
)

SETTINGS, ACKED = 0x4, 0x1
DATA, HEADERS, RST_STREAM, PING = 0x0, 0x1, 0x3, 0x6
STATUS = health_pb2.HealthCheckResponse


def answer(status: int) -> bytes:
    message = STATUS(status=status).SerializeToString()
    return (
        frame(SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x64")
        + frame(HEADERS, 0x4, 1, b"\x88")
        + frame(DATA, 0, 1, b"\0" + len(message).to_bytes(4) + message)
    )


@pytest.mark.parametrize("status", [STATUS.UNKNOWN, STATUS.SERVING, STATUS.NOT_SERVING])
def test_the_status_is_decoded_from_protobuf(status: int) -> None:
    _, found = HealthExchange().receive(answer(status))
    assert found == status


def test_an_answer_may_arrive_byte_by_byte() -> None:
    conversation = HealthExchange()
    found = [conversation.receive(bytes([byte]))[1] for byte in answer(STATUS.SERVING)]
    assert found[-1] == STATUS.SERVING
    assert set(found[:-1]) == {None}


def test_settings_and_pings_are_acknowledged_once() -> None:
    replies, status = HealthExchange().receive(
        frame(SETTINGS, 0, 0) + frame(SETTINGS, ACKED, 0) + frame(PING, 0, 0, b"12345678")
    )
    assert replies == frame(SETTINGS, ACKED, 0) + frame(PING, ACKED, 0, b"12345678")
    assert status is None


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(frame(HEADERS, 0x5, 1, b"\x88"), id="trailers alone"),
        pytest.param(frame(RST_STREAM, 0, 1, bytes(4)), id="reset"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
        pytest.param(frame(DATA, 0, 1, b"\0\0\0\0\x03abc"), id="another message"),
    ],
)
def test_an_invalid_answer_is_rejected(received: bytes) -> None:
    with pytest.raises(UnhealthyError):
        HealthExchange().receive(received)


def test_a_status_of_several_bytes_is_invalid() -> None:
    with pytest.raises(UnhealthyError):
        serving_status(b"\x08\x80\x01")


def test_the_request_ends_its_stream_with_an_empty_message() -> None:
    assert check_request().endswith(frame(DATA, 0x1, 1, bytes(5)))


@pytest.mark.parametrize(
    ("address", "probed"),
    [
        ("0.0.0.0:7500", ("127.0.0.1", 7500)),
        ("[::]:7500", ("::1", 7500)),
        ("broker-1:7500", ("broker-1", 7500)),
    ],
)
def test_a_wildcard_address_is_probed_on_loopback(address: str, probed: tuple[str, int]) -> None:
    assert target_address(address) == probed


@pytest.mark.parametrize(
    "argv",
    [[], ["tcp"], ["grpc"], ["grpc", "broker-1"], ["grpc", "broker-1:0"], ["grpc", "a", "b"]],
)
def test_wrong_usage_is_distinguished_from_an_unhealthy_service(
    argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LISTEN_VARIABLE, raising=False)
    assert main(argv) == EXIT_USAGE
