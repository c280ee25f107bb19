"""The README lists every key of every configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from tidelog_broker.config import BrokerConfig
from tidelog_controller.config import ControllerConfig
from tidelog_runtime.config import ServiceConfig
from tidelog_runtime.topic_config import TopicConfig

README = (Path(__file__).parents[3] / "README.md").read_text()
SERVICE_KEYS = set(ServiceConfig.model_fields) - {"config"}


def keys_after(introduction: str) -> set[str]:
    """Those of the first table below these words."""
    table = README.partition(introduction)[2].partition("| --- |")[2].partition("\n\n")[0]
    firsts = [line.split("|")[1] for line in table.splitlines()[1:]]
    return {key for first in firsts for key in re.findall(r"`(\w+)`", first)}


@pytest.mark.parametrize(
    ("introduction", "config"),
    [
        ("A topic's configuration", TopicConfig),
        ("A broker, besides:", BrokerConfig),
        ("A controller, besides:", ControllerConfig),
    ],
)
def test_every_key_is_listed_and_no_other(introduction: str, config: type[BaseModel]) -> None:
    assert keys_after(introduction) == set(config.model_fields) - set(ServiceConfig.model_fields)


def test_every_key_of_all_services_is_listed_and_no_other() -> None:
    assert keys_after("Every service") == SERVICE_KEYS
