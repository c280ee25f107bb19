"""Listening addresses of brokers and controllers, and which ones they reject."""

from __future__ import annotations

import pytest

from tidelog_broker.broker_config import BrokerConfig
from tidelog_runtime.config import load

REQUIRED = ("--broker-id=1", "--data-dir=/data")


def error_text(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        load(BrokerConfig, [*REQUIRED, *argv])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_without_an_external_listener_there_is_no_external_address() -> None:
    assert load(BrokerConfig, REQUIRED).external_address == ""


def test_the_default_external_address_is_that_of_the_external_listener() -> None:
    config = load(BrokerConfig, [*REQUIRED, "--external-listen=192.0.2.1:7501"])
    assert config.external_address == "192.0.2.1:7501"


def test_the_external_advertised_address_wins() -> None:
    config = load(
        BrokerConfig,
        [
            *REQUIRED,
            "--external-listen=0.0.0.0:7501",
            "--external-advertised-address=tide.example:7501",
        ],
    )
    assert config.external_address == "tide.example:7501"
    assert config.address == "127.0.0.1:7500"


@pytest.mark.parametrize(
    ("argv", "remedy"),
    [
        (["--listen=0.0.0.0:7500"], "set advertised_address"),
        (["--external-advertised-address=h:1"], "set external_listen"),
        (["--external-listen=127.0.0.1:7500"], "give each a port of its own"),
        (["--external-listen=127.0.0.1:0"], "give it a port that others can know"),
        (["--external-listen=[::]:7501"], "set external_advertised_address"),
    ],
)
def test_an_unusable_address_is_rejected(
    argv: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert remedy in error_text(capsys, *argv)
