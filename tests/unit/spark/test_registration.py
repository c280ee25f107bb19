"""Settings that a session gets when the data source is registered."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.spark import register

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"


def registered(**decided: str) -> dict[str, str]:
    """The settings of a session after the registration; `decided` were set before."""
    settings = dict(decided)
    conf = SimpleNamespace(getAll=dict(decided), set=settings.__setitem__)
    sources: list[Any] = []
    environment: dict[str, str] = {"PYTHONHASHSEED": "0"}
    session: Any = SimpleNamespace(
        conf=conf,
        dataSource=SimpleNamespace(register=sources.append),
        sparkContext=SimpleNamespace(environment=environment),
    )
    register(session)
    assert environment == {"PYTHONHASHSEED": "0"}
    assert [source.name() for source in sources] == ["tidelog"]
    return settings


def test_filters_are_pushed_and_a_repeated_batch_is_planned_identically() -> None:
    assert registered() == {PUSHDOWN: "true", ADAPTIVE: "false"}


def test_settings_made_by_the_user_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    decided = {PUSHDOWN: "false", ADAPTIVE: "true"}
    with caplog.at_level(logging.WARNING):
        assert registered(**decided) == decided
    assert f"{ADAPTIVE} is true: in a stream that writes to tidelog a micro-batch" in caplog.text


def test_speculation_causes_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        registered(**{"spark.speculation": "true"})
    assert "is true: in a stream that writes to tidelog two concurrent attempts" in caplog.text
