"""Former names can be imported until the version that `tidelog.former_modules` names."""

from __future__ import annotations

import importlib
import sys
from inspect import unwrap

import pytest

from tidelog import former_modules
from tidelog.client import Consumer, Producer
from tidelog_pipeline import former_modules as former_job_modules

FORMER_MODULES = former_modules.FORMER_MODULES | former_job_modules.FORMER_MODULES

# What pages, examples and scripts of users imported from them.
FORMER_CONTENTS = [
    ("tidelog.client.operations", "BegunOperation, Operation, Plan, Move, Throttle, BrokerDetails"),
    ("tidelog.client.topic_details", "TopicDetails, PartitionDetails, PartitionMove, ConfigEntry"),
    ("tidelog.history", "Finding"),
    ("tidelog.history.operations", "Operation, SendInvoked, PollEnded"),
    ("tidelog_pipeline.archive.job", "main"),
    ("tidelog_pipeline.archive.reconciling", "_is_compared, reconcile"),
    ("tidelog_pipeline.archive.spans", "LogId, Span"),
    ("tidelog_pipeline.lag.job", "main"),
    ("tidelog_pipeline.state_changes.job", "main"),
    ("tidelog_pipeline.check.job", "main"),
]


@pytest.mark.parametrize(("former", "name"), FORMER_MODULES.items())
def test_a_former_module_name_imports_the_module_and_warns(former: str, name: str) -> None:
    sys.modules.pop(former, None)
    with pytest.warns(DeprecationWarning, match=f"{former} is a former name of {name}"):
        module = importlib.import_module(former)
    assert module is importlib.import_module(name)
    assert module.__name__ == name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("former", "contents"), FORMER_CONTENTS)
def test_a_former_module_has_its_former_contents(former: str, contents: str) -> None:
    exec(f"from {former} import {contents}")


def test_members_of_clients_keep_their_former_names() -> None:
    assert unwrap(Consumer.told_offsets) is unwrap(Consumer.offsets_with_epochs)
    assert isinstance(Producer._turns, property)
