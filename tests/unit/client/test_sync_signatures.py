"""The clients without async have every method of the async ones, with the same parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import tidelog.client
from tidelog.client import (
    Admin,
    Consumer,
    Producer,
    SyncAdmin,
    SyncConsumer,
    SyncDelivery,
    SyncProducer,
)
from tidelog.client.delivery import BatchReport
from unit.client.contract_calls import CLIENTS, SYNC_CLIENTS, PublicCall, public_calls

PAIRS = {Producer: SyncProducer, Consumer: SyncConsumer, Admin: SyncAdmin}
# Methods of the language, and former names, which new classes do not have.
NOT_IN_SYNC = frozenset({"__aenter__", "__aiter__", "__anext__", "told_offsets"})
# Results that differ, by the sync method.
OWN_RESULTS: Mapping[str, Any] = MappingProxyType(
    {
        "SyncProducer.send": SyncDelivery,
        "SyncProducer.send_many": list[BatchReport],
        "SyncConsumer.assign": type(None),
        "SyncConsumer.seek": type(None),
    }
)

each_pair = pytest.mark.parametrize(
    ("of_async", "of_sync"), PAIRS.items(), ids=lambda client: client.__name__
)
each_shared = pytest.mark.parametrize(
    "call", [c for c in public_calls(*CLIENTS) if c.method not in NOT_IN_SYNC], ids=str
)


def parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    found = [*inspect.signature(method).parameters.values()][1:]
    return [(each.name, each.kind, each.default) for each in found]


def hints(method: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(method)


@each_pair
def test_both_have_the_same_settings(of_async: type, of_sync: type) -> None:
    assert parameters(of_sync.__init__) == parameters(of_async.__init__)  # type: ignore[misc]
    assert hints(of_sync.__init__) == hints(of_async.__init__)  # type: ignore[misc]


@each_shared
def test_each_method_has_a_counterpart_with_the_same_parameters(call: PublicCall) -> None:
    of_sync = PAIRS[call.client]
    own, other = getattr(of_sync, call.method), getattr(call.client, call.method)
    assert parameters(own) == parameters(other)
    expected = {**hints(other)}
    if (name := f"{of_sync.__name__}.{call.method}") in OWN_RESULTS:
        expected["return"] = OWN_RESULTS[name]
    assert hints(own) == expected


@each_pair
def test_a_property_has_a_method(of_async: type, of_sync: type) -> None:
    for name, member in inspect.getmembers(of_async):
        if isinstance(member, property) and not name.startswith("_"):
            assert hints(getattr(of_sync, name)) == hints(member.fget)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [c for c in public_calls(*CLIENTS, *SYNC_CLIENTS) if not c.method.startswith("__")],
    ids=str,
)
def test_each_method_has_a_docstring(call: PublicCall) -> None:
    assert inspect.getdoc(getattr(call.client, call.method))


def test_a_method_made_from_a_coroutine_has_its_own_name_and_place() -> None:
    assert SyncAdmin.create_topic.__qualname__ == "SyncAdmin.create_topic"
    assert SyncAdmin.create_topic.__module__ == SyncAdmin.__module__
    assert Admin.create_topic.__qualname__ == "TopicRequests.create_topic"


def named_types(hint: Any) -> set[type]:
    """The classes of Tidelog in an annotation."""
    found = {each for argument in get_args(hint) for each in named_types(argument)}
    each = get_origin(hint) or hint
    if inspect.isclass(each) and each.__module__.startswith("tidelog"):
        found.add(each)
    return found


@pytest.mark.parametrize("call", public_calls(*CLIENTS, *SYNC_CLIENTS), ids=str)
def test_what_a_call_takes_and_returns_is_exported(call: PublicCall) -> None:
    for hint in hints(getattr(call.client, call.method)).values():
        for each in named_types(hint) - {*CLIENTS, *SYNC_CLIENTS}:
            assert getattr(tidelog.client, each.__name__) is each


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_the_enumerations_of_settings_are_exported(client: type) -> None:
    for hint in hints(client.__init__).values():  # type: ignore[misc]
        for each in named_types(hint):
            # The network and the clock are replaced in tests only.
            if each.__name__ not in ("Connections", "Clock"):
                assert getattr(tidelog.client, each.__name__) is each
