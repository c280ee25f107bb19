"""The documentation lists every configuration key, and the bounds on producers."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

from documented import SPARK_JOBS, read
from tidelog_admin_api.config import AdminApiConfig
from tidelog_broker.config import BrokerConfig
from tidelog_broker.core.partition.producer_state import (
    MAX_RECENT_UNNAMED_PRODUCERS,
    MAX_UNNAMED_PRODUCERS,
)
from tidelog_controller.config import ControllerConfig
from tidelog_pipeline.archive import config as archive
from tidelog_pipeline.config import BrokersConfig
from tidelog_pipeline.lag import config as lag
from tidelog_runtime.config import RegisteredConfig, ServiceConfig
from tidelog_runtime.topic_config import TopicConfig

CONFIGURATION = read("docs/reference/configuration.md")
JOBS = read(SPARK_JOBS)
SERVICE_KEYS = set(ServiceConfig.model_fields) - {"config"}


def keys_after(introduction: str, page: str = CONFIGURATION) -> set[str]:
    """The keys in the first table after these words, or in the table whose header they are."""
    table = page.partition(introduction)[2].partition("| --- |")[2].partition("\n\n")[0]
    firsts = [line.split("|")[1] for line in table.splitlines()[1:]]
    return {key for first in firsts for key in re.findall(r"`(\w+)`", first)}


@pytest.mark.parametrize(
    ("introduction", "config"),
    [
        ("\n## Topics\n", TopicConfig),
        ("\n## Brokers\n", BrokerConfig),
        ("\n## Controllers\n", ControllerConfig),
    ],
)
def test_every_key_is_listed_and_no_other(introduction: str, config: type[BaseModel]) -> None:
    assert keys_after(introduction) == set(config.model_fields) - set(RegisteredConfig.model_fields)


def test_every_key_of_the_gateway_is_listed_and_no_other() -> None:
    shared = SERVICE_KEYS | {"config"}
    # `listen` is in the table because the gateway serves HTTP there, not gRPC.
    assert keys_after("\n## Gateway\n") == (set(AdminApiConfig.model_fields) - shared | {"listen"})


def test_every_key_of_jobs_is_listed_and_no_other() -> None:
    shared = set(BrokersConfig.model_fields) - {"config"}
    assert keys_after("\n### Settings of every job\n", JOBS) == shared
    for job, actions in (("archive", archive.ACTIONS), ("lag", lag.ACTIONS)):
        keys = {key for one in actions.values() for key in one.model_fields}
        documented = keys_after(f"| key of `{job}` | meaning |", JOBS)
        assert documented == keys - set(BrokersConfig.model_fields)


def test_every_key_of_all_services_is_listed_and_no_other() -> None:
    assert keys_after("\n## All services\n") == SERVICE_KEYS


def test_every_key_of_brokers_and_controllers_is_listed_and_no_other() -> None:
    assert keys_after("\n## Brokers and controllers\n") == (
        set(RegisteredConfig.model_fields) - set(ServiceConfig.model_fields)
    )


def test_the_bounds_on_producers_are_where_their_expiry_is_described() -> None:
    key = "`producer_id_expiration_ms` |"
    row = next(line for line in CONFIGURATION.splitlines() if key in line)
    described = BrokerConfig.model_fields["producer_id_expiration_ms"].description
    for bound in (MAX_UNNAMED_PRODUCERS, MAX_RECENT_UNNAMED_PRODUCERS):
        assert f"{bound:,}" in row
        assert f"{bound:,}" in (described or "")
